#!/usr/bin/env bash
# container.sh: the two container recipes take the same steps from the same images; and, with `container.sh build`, the
# Containerfile is built (by podman or buildah) and the program in it runs. Exit code 69: there is nothing here to build with.
set -euo pipefail
cd "$(dirname "$0")/.."
file=docs/containers/Containerfile def=docs/containers/halognn.def

# What both must have, brought to one form: images, commands, environment.
steps() { # shellcheck disable=SC2016
  sed -e 's/#.*//' -e 's/{{ \(VERSION\) }}/$\1/' -e 's/^ *export /ENV /' -e 's/^ *exec halognn.*/ENTRYPOINT/' \
    -e 's/^ENTRYPOINT.*/ENTRYPOINT/' -e 's/^FROM docker.io\/library\/\([^ ]*\).*/From: \1/' -e 's/^RUN //' -e 's/^ *//' "$1" |
    grep -E '^(From:|ENV|ENTRYPOINT|apt-get|tests/install.sh)'
}
diff <(steps $file) <(steps $def) || { echo "container.sh: $file and $def differ (above)" >&2; exit 1; }
[ "${1:-}" = build ] || exit 0

if command -v podman >/dev/null 2>&1; then build=(podman build) run=(podman run --rm)
elif command -v docker >/dev/null 2>&1; then build=(docker build) run=(docker run --rm)
else echo "container.sh: neither podman nor docker here" >&2; exit 69; fi
"${build[@]}" -f $file --build-arg VERSION=test -t halognn-test .
"${run[@]}" halognn-test version
