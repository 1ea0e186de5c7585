#!/usr/bin/env bash
# sanitize_gpu.sh [TOOL]...: runs the suite of compute/cuda, and the tests of minibatches that the
# GPU draws, under compute-sanitizer, with every array an allocation of its own. The default tools
# find memory errors and leaks, uninitialised reads, and synchronisation errors. No kernel uses
# shared memory, so racecheck has nothing to find. Needs a GPU. For a machine without Go, CUDA_TEST
# and SAMPLE_TEST name the tests of compute/cuda and sample, built by `go test -c`, and WITH a
# command that runs them; with CUDA_TEST alone, the drawing is not tested.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 0 "$@"
cd "$(dirname "$0")/../.."
HALOGNN_QUIET=1 source ./env.sh
command -v compute-sanitizer >/dev/null 2>&1 || {
  echo "sanitize_gpu.sh: no compute-sanitizer on the PATH; it comes with the CUDA toolkit" >&2
  exit 69
}
nvidia-smi -L || { echo "sanitize_gpu.sh: there is no GPU here" >&2; exit 69; }
if [ -z "${CUDA_TEST:-}" ]; then
  make --silent --no-print-directory cuda
  export HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so CUDA_TEST=$PWD/build/cuda.test
  export SAMPLE_TEST=$PWD/build/sample.test
  go test -c -o "$CUDA_TEST" ./src/devices/compute/cuda
  go test -c -o "$SAMPLE_TEST" ./src/topology/sample
fi
# A call that the driver refuses is no error: every code is checked, and some tests want refusals.
[ $# -gt 0 ] || set -- 'memcheck --leak-check full --report-api-errors no' initcheck synccheck
# sanitized TOOL DIR TEST PATTERN runs the tests of a package in its directory.
sanitized() (
  cd "$2"
  # shellcheck disable=SC2086 # a command or nothing, a tool and its options
  ${WITH:-} compute-sanitizer --tool $1 --error-exitcode 1 "$3" -test.v -test.run "$4"
)
kernels='TestBackend|TestStaging|TestDownloads|TestMapRows|TestRowRates|TestHeldRows|TestMeter'
for tool in "$@"; do
  echo "== $tool"
  sanitized "$tool" src/devices/compute/cuda "$CUDA_TEST" "$kernels|TestDrawings"
  [ -z "${SAMPLE_TEST:-}" ] || sanitized "$tool" src/topology/sample "$SAMPLE_TEST" OnADevice
done
