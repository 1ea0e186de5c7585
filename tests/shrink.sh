#!/usr/bin/env bash
# shrink.sh openmpi|mpich [COUNT] [SEED]: truncates COUNT files (features and topology) under
# running jobs, half of them in one process and half under that MPI, at depths 0 to 5. Each job must
# end soon, with one message about the file, and leave nothing. A job that hangs is shown with all
# its stacks. First, at each depth, two ranks are made to fail at the same time.
set -euo pipefail
cd "$(dirname "$0")/.."
export HALOGNN_MPICC=mpicc.${1:?usage: shrink.sh openmpi|mpich [COUNT] [SEED]} HALOGNN_QUIET=1
source ./env.sh
export HALOGNN_TAGS+=,light # as in mpi.sh
go test -v -tags "$HALOGNN_TAGS,faults" -count=1 -timeout 10h -run 'TestShrinks|TestTwoRanksFailAtOnce' \
  ./tests/faults -args -shrinks "${2:-20}" -seed "${3:-1}"
