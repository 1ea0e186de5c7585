#!/usr/bin/env bash
# shrink.sh openmpi|mpich [COUNT] [SEED]: truncates COUNT files (features and topology) under
# running jobs, half of them in one process and half under that MPI, at depths 0 to 5, and holds
# each job to its end: soon, with one message about the file, and nothing left. A job that hangs is
# shown with all its stacks. Before, at each depth, two ranks fail at once for certain.
set -euo pipefail
cd "$(dirname "$0")/.."
export HALOGNN_MPICC=mpicc.${1:?usage: shrink.sh openmpi|mpich [COUNT] [SEED]} HALOGNN_QUIET=1
source ./env.sh
export HALOGNN_TAGS+=,light # as mpi.sh has it
go test -v -tags "$HALOGNN_TAGS,faults" -count=1 -timeout 10h -run 'TestShrinks|TestTwoRanksFailAtOnce' \
  ./tests/faults -args -shrinks "${2:-20}" -seed "${3:-1}"
