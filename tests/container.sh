#!/usr/bin/env bash
# container.sh: checks that both container recipes take the same steps from the same images.
# `container.sh build` also builds the Containerfile (with podman, docker or buildah) and runs the
# program in it. Exit code 69: it cannot be built here, and a line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
file=docs/containers/Containerfile def=docs/containers/halognn.def

# What both recipes must have, in one form: images, commands, environment.
steps() { # shellcheck disable=SC2016
  sed -e 's/#.*//' -e 's/{{ \(COMMIT\) }}/$\1/' -e 's/^ *export /ENV /' \
    -e 's/^ *exec halognn.*/ENTRYPOINT/' \
    -e 's/^ENTRYPOINT.*/ENTRYPOINT/' -e 's/^FROM docker.io\/library\/\([^ ]*\).*/From: \1/' \
    -e 's/^RUN //' -e 's/^ *//' "$1" |
    grep -E '^(From:|ENV|ENTRYPOINT|apt-get|tests/install.sh)'
}
diff <(steps $file) <(steps $def) || {
  echo "container.sh: $file and $def differ (above)" >&2
  exit 1
}
if [ "${1:-}" != build ]; then
  echo "container.sh: the recipes take the same steps; \`tests/container.sh build\`, which" \
    "fetches images, builds the containers"
  exit 0
fi

# not_built REASON...
not_built() { echo "container.sh: containers were not built: $*" >&2; exit 69; }
builder='' why='none of podman, docker and buildah is installed'
for b in podman docker buildah; do
  command -v $b >/dev/null 2>&1 || continue
  if fault=$($b info 2>&1 >/dev/null); then builder=$b; break; fi
  why="$b does not work: ${fault##*$'\n'}"
done
[ -n "$builder" ] || not_built "$why"
for image in $(steps $file | sed -n 's/^From: //p'); do
  fault=$(timeout 300 $builder pull -q "docker.io/library/$image" 2>&1) ||
    not_built "$builder cannot fetch $image: ${fault##*$'\n'}"
done
case $builder in
  buildah)
    buildah build -f $file --build-arg COMMIT=test -t halognn-test .
    box=$(buildah from halognn-test)
    trap 'buildah rm "$box" >/dev/null' EXIT
    buildah run "$box" halognn version
    ;;
  *)
    $builder build -f $file --build-arg COMMIT=test -t halognn-test .
    $builder run --rm halognn-test version
    ;;
esac
