#!/usr/bin/env bash
# grid.sh [REVISION]: builds the program at REVISION (default HEAD) in a worktree of its own, and
# checks that the program in bin/ gives its numbers over the grid of tests/grid, in process and
# under mpirun.
set -euo pipefail
cd "$(dirname "$0")/.."
revision=${1:-HEAD}
HALOGNN_QUIET=1 source ./env.sh
before=$(mktemp -d)
trap 'git worktree remove --force "$before/tree" 2>/dev/null; rm -rf "$before"' EXIT
git worktree add --quiet --detach "$before/tree" "$revision"
(unset HALOGNN_ROOT && make --silent --no-print-directory -C "$before/tree" build) >&2
make --silent --no-print-directory build >&2
go run ./tests/grid ${HALOGNN_MPIRUN:+-mpirun "$HALOGNN_MPIRUN"} "$before/tree/bin/halognn" \
  bin/halognn
