#!/usr/bin/env bash
# cuda.sh: what can be held of the CUDA path here. Where nvcc is, the kernels compile and link without a warning; the same sources run on an
# emulated device with queued work at random times; where a GPU is, all suites run on it. What did not run is said in a line each.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
make --silent --no-print-directory build/libhalognn_cuda_emulated.so
for seed in 1 2; do
  HALOGNN_EMULATED_SEED=$seed go test -count=1 -run 'Inboxes|Downloads|Offboard' ./src/compute/cuda ./src/train
done
if ! command -v "${NVCC:-nvcc}" >/dev/null 2>&1; then
  echo "not run: compiling the CUDA kernels: nvcc is not installed (HALOGNN_CUDA=1 installs it; NVCC names another)"
elif ! out=$(make --silent --no-print-directory cuda 2>&1); then
  printf '%s\n' "$out"
  exit 1
elif [ -n "$out" ]; then
  printf 'nvcc warns:\n%s\n' "$out"
  exit 1
else
  echo "compiled and linked: build/libhalognn_cuda.so, $("${NVCC:-nvcc}" --version | sed -n 's/.*release //p')"
fi
if [ -f build/libhalognn_cuda.so ] && nvidia-smi -L >/dev/null 2>&1; then
  HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so go test -count=1 ./src/compute/cuda
  HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so go test -count=1 -run Offboard ./src/train
else
  echo "not run: the kernels on a GPU: there is none here, or no build/libhalognn_cuda.so; the suites ran on an emulated device"
fi
