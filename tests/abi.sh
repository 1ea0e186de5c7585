#!/usr/bin/env bash
# abi.sh [install]: tests one build against the standard MPI ABI under its two libraries, MPICH 5
# and Intel MPI, which come from PyPI into build/abi: the communication suite, and a tool of MPI's
# profiling interface. install: only gets the libraries, and succeeds without them.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/abi
# Intel MPI is the last release that is complete on PyPI: 2021.19 needs a libfabric that is missing.
for wheel in mpich==5.0.2 impi-rt==2021.18.1; do
  at=build/abi/${wheel%%==*}
  [ "$(cat "$at/is" 2>/dev/null)" != "$wheel" ] || continue
  rm -rf "$at"
  if { "${PYTHON:-python3}" -m venv "$at" && "$at/bin/pip" install -q "$wheel"; } >build/abi/log 2>&1; then
    echo "$wheel" >"$at/is"
    continue
  fi
  rm -rf "$at"
  echo "abi.sh: the wheel $wheel cannot be had: $(tail -1 build/abi/log)"
  [ "${1:-}" = install ] || exit 77
  exit 0
done
[ "${1:-}" != install ] || exit 0
export HALOGNN_MPICC=$PWD/build/abi/mpich/bin/mpicc_abi HALOGNN_QUIET=1
source ./env.sh
export GOFLAGS+=,light HALOGNN_TAGS+=,light # the kernels are compiled as in mpi.sh
go test -c -o build/abi/comm.test ./src/ranks/comm/mpi
go build -o build/abi/halognn ./src/cmd/halognn
for mpi in mpich impi-rt; do
  export LD_LIBRARY_PATH=$PWD/build/abi/$mpi/lib
  mpirun=$PWD/build/abi/$mpi/bin/mpirun
  "$mpirun" -np 1 build/abi/halognn version | grep '^MPI'
  for n in 1 2 4; do # these MPIs poll, so no more ranks than processors
    [ "$n" -le "$(nproc)" ] || continue
    echo "-- comm suite, $n ranks, $mpi"
    (cd src/ranks/comm/mpi && timeout 1800 "$mpirun" -np "$n" ../../../../build/abi/comm.test)
  done
  HALOGNN_ABI_MPIRUN=$mpirun tests/pmpi.sh build/abi/halognn
done
