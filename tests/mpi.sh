#!/usr/bin/env bash
# mpi.sh openmpi|mpich: runs, under one MPI, the communication suite, whole runs of the program, and
# runs whose files shrink. It leaves out whole runs that `make test` has under that MPI. Whole runs
# that an MPI could affect have UnderAnyMPI in their names.
set -euo pipefail
cd "$(dirname "$0")/.."
mpi=${1:?usage: mpi.sh openmpi|mpich}
usual=$(readlink -f "$(command -v "${HALOGNN_MPICC:-mpicc}")" || true)
export HALOGNN_MPICC=mpicc.$mpi HALOGNN_QUIET=1
source ./env.sh
mkdir -p "build/$mpi"
export GOFLAGS+=,light HALOGNN_TAGS+=,light # the kernels are compiled once more for each MPI
go test -c -o "build/$mpi/comm.test" ./src/ranks/comm/mpi
go build -o "build/$mpi/halognn" ./src/cmd/halognn
for n in 1 2 3 4; do
  echo "-- comm suite, $n ranks, $HALOGNN_MPIRUN"
  (cd src/ranks/comm/mpi &&
    timeout 1800 "$HALOGNN_MPIRUN" -np "$n" "$HALOGNN_ROOT/build/$mpi/comm.test")
done
if [ "$(readlink -f "$(command -v "$HALOGNN_MPICC")")" != "$usual" ]; then
  HALOGNN_BIN=$PWD/build/$mpi/halognn go test -count=1 -run UnderAnyMPI ./tests -args -cells-mpi 5
else
  echo "whole runs of the program under $mpi: make test has them"
fi
tests/pmpi.sh "build/$mpi/halognn"
tests/shrink.sh "$mpi" 20
