#!/usr/bin/env bash
# sanitize_gpu.sh [TOOL]...: compute-sanitizer over the suite of compute/cuda, in which arrays are
# allocations of their own: memory and leaks, uninitialised reads, synchronisation; or the tools
# that are named. No kernel uses shared memory, so racecheck has nothing to find. Needs a GPU.
# CUDA_TEST names the tests of compute/cuda, built by `go test -c`, and WITH a command to run them
# with, where Go is not.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/usage.sh" 0 "$@"
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
command -v compute-sanitizer >/dev/null 2>&1 || {
  echo "sanitize_gpu.sh: no compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 69
}
nvidia-smi -L || { echo "sanitize_gpu.sh: there is no GPU here" >&2; exit 69; }
if [ -z "${CUDA_TEST:-}" ]; then
  make --silent --no-print-directory cuda
  export HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so CUDA_TEST=$PWD/build/cuda.test
  go test -c -o "$CUDA_TEST" ./src/compute/cuda
fi
# A call that the driver refuses is no fault: every code is checked, and some tests want refusals.
[ $# -gt 0 ] || set -- 'memcheck --leak-check full --report-api-errors no' initcheck synccheck
cd src/compute/cuda
for tool in "$@"; do
  echo "== $tool"
  # shellcheck disable=SC2086 # a command or nothing, a tool and its options
  ${WITH:-} compute-sanitizer --tool $tool --error-exitcode 1 "$CUDA_TEST" -test.v \
    -test.run \
    'TestBackend|TestStaging|TestDownloads|TestMapRows|TestRowRates|TestHeldRows|TestMeter'
done
