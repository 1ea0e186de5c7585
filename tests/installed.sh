#!/usr/bin/env bash
# installed.sh: tests `make install` into a directory of its own, and the program, job scripts and
# module file in it.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d "${TMPDIR:-/tmp}/halognn-install-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
make --no-print-directory install PREFIX=/opt/halognn DESTDIR="$scratch/stage"
make --no-print-directory install PREFIX="$scratch/prefix"

list() { (cd "$1" && find . | sort); }
diff <(list "$scratch/stage/opt/halognn") <(list "$scratch/prefix") || {
  echo "installed.sh: DESTDIR changes what is installed" >&2
  exit 1
}
for script in jobs/*.sbatch jobs/resumable.sh env.sh inputs/demo.yaml bin/halognn docs/config.md \
  profiling/merge.sh; do
  [ -e "$scratch/prefix/share/halognn/$script" ] || {
    echo "installed.sh: $script is missing" >&2
    exit 1
  }
done
for page in man/man1/halognn-train.1 bash-completion/completions/halognn \
  zsh/site-functions/_halognn fish/vendor_completions.d/halognn.fish; do
  [ -s "$scratch/prefix/share/$page" ] || {
    echo "installed.sh: share/$page is missing" >&2
    exit 1
  }
done
bash -n "$scratch/prefix/share/bash-completion/completions/halognn"
module=("$scratch"/prefix/share/modulefiles/halognn/*)
if ! grep -q "prepend-path PATH $scratch/prefix/bin" "${module[0]}" || grep '@' "${module[0]}"; then
  echo "installed.sh: ${module[0]} is not filled in" >&2; exit 1
fi
# checks in Tcl what a module system would do with the module file
if command -v tclsh >/dev/null 2>&1; then
  tclsh <<TCL
foreach command {module-whatis conflict prepend-path setenv} { proc \$command args {} }
source {${module[0]}}
TCL
fi
cd "$scratch"
export HALOGNN_ROOT=$scratch/prefix/share/halognn HALOGNN_QUIET=1
source "$HALOGNN_ROOT/env.sh" # as job scripts do, without the kernels of the repository
release=$(basename "${module[0]}")
"$HALOGNN_ROOT/bin/halognn" version | tee version.txt
for states in version.txt "${module[0]}"; do
  grep -q " $release+" "$states" || {
    echo "installed.sh: $states does not state version $release" >&2
    exit 1
  }
done
