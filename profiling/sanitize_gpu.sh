#!/usr/bin/env bash
# sanitize_gpu.sh: compute-sanitizer (memory and leaks, uninitialised reads, synchronisation) over
# the suite of compute/cuda, in which arrays are allocations of their own. No kernel uses shared
# memory, so there is nothing for racecheck. Needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
command -v compute-sanitizer >/dev/null 2>&1 || {
  echo "sanitize_gpu.sh: no compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 69
}
nvidia-smi -L || { echo "sanitize_gpu.sh: there is no GPU here" >&2; exit 69; }
make --silent --no-print-directory cuda
export HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so
go test -c -o build/cuda.test ./src/compute/cuda
cd src/compute/cuda
for tool in "memcheck --leak-check full" initcheck synccheck; do
  echo "== $tool"
  # shellcheck disable=SC2086 # a tool and its options
  compute-sanitizer --tool $tool --error-exitcode 1 ../../../build/cuda.test \
    -test.run 'TestBackend|TestStaging|TestDownloads|TestMapRows|TestRowRates|TestMeter'
done
