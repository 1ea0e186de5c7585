#!/usr/bin/env bash
# cuda.sh: tests as much of the CUDA path as this machine can. With nvcc, the kernels must compile
# and link without a warning. The same sources run on an emulated device, whose queued work runs at
# random times, and under AddressSanitizer and UBSan. With a GPU, all suites run on it. A line names
# each thing that did not run.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
make --silent --no-print-directory build/libhalognn_cuda_emulated.so
# A step of all.sh runs all tests on an emulated device; these run again with work as late as
# possible.
HALOGNN_EMULATED_SEED=1 go test -short -vet=off -count=1 \
  -run 'Staging|Downloads|Offboard|TenSteps|DrawnOnDevices' \
  ./src/devices/compute/cuda ./src/runs/infer ./src/runs/train
# Compiled with both sanitizers, and every array an allocation of its own: kernels, copies and
# staging buffers. Not kernels whose threads synchronise: they switch stacks, which AddressSanitizer
# follows too slowly (layernorm, softmax, sigmoid).
asan=$("${CXX:-c++}" -print-file-name=libasan.so)
if [ -e "$asan" ]; then
  make --silent --no-print-directory -j"$(nproc)" -C kernels BUILD="$PWD/build" emulated SANITIZE=1
  go test -c -o build/cuda-emulated-sanitize/cuda.test ./src/devices/compute/cuda
  go test -c -o build/cuda-emulated-sanitize/sample.test ./src/topology/sample
  (
    cd src/devices/compute/cuda
    HALOGNN_CUDA_LIB=../../../../build/cuda-emulated-sanitize/libhalognn_cuda_emulated.so \
      LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 \
      ../../../../build/cuda-emulated-sanitize/cuda.test -test.timeout 20m \
      -test.run \
      '^(TestBackend|TestStaging|TestDownloads|TestRowRates|TestMapRowsOfFiles|TestLinks|TestAnyThread)$/(product|groups|bias|finish|relu|batchnorm|segment|adam|sgd|seed=1)|^TestBackend$/^dense$/^two|^TestPairs$/^bf16$'
  )
  (
    cd src/topology/sample
    HALOGNN_CUDA_LIB=../../../build/cuda-emulated-sanitize/libhalognn_cuda_emulated.so \
      LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 \
      ../../../build/cuda-emulated-sanitize/sample.test -test.timeout 20m -test.run 'OnADevice'
  )
else
  echo "not run: the kernels under AddressSanitizer: ${CXX:-c++} has no libasan.so"
fi
# On the emulated device the benchmarks run, a step's kernels are accounted for and, if PyTorch is
# installed, every loss equals PyTorch's.
emulated=$PWD/build/libhalognn_cuda_emulated.so
HALOGNN_CUDA_LIB=$emulated go test -count=1 -run '^$' -bench . -benchtime 1x \
  ./src/devices/compute/cuda |
  sed -n 's/^ok/benchmarks run (their numbers mean nothing here):/p'
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
program=${HALOGNN:-bin/halognn} python=${PYTHON:-/usr/bin/python3}
"$program" generate --kind sbm --vertices 600 --degree 8 --features 8 --classes 4 --seed 1 \
  --out "$dir/data" >/dev/null
"$program" partition --data "$dir/data" --parts 1 --method contiguous --seed 1 --out "$dir/parts" \
  >/dev/null
HALOGNN_CUDA_LIB=$emulated "$program" train --config inputs/demo.yaml \
  --set "data.parts=$dir/parts" --set "run.dir=$dir/run" --set compute.device=cuda \
  --set train.epochs=2 --kernels >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
grep -q 'input rows .*[0-9]' "$dir/log" || { cat "$dir/log"; exit 1; }
if "$python" -c 'import torch, numpy' >/dev/null 2>&1; then
  HALOGNN_CUDA_LIB=$emulated "$python" profiling/lab/gpu_vs_pyg.py --device cuda --torch-device cpu \
    --halognn "$program" --work "$dir/compared" \
    --data "$dir/data" --parts "$dir/parts" --hidden 8 --fanouts 4,3 --batch 64 --epochs 1 --steps 5
else
  echo "not run: losses on the emulated device beside PyTorch's: $python has no torch (PYTHON names another)"
fi
if ! command -v "${NVCC:-nvcc}" >/dev/null 2>&1; then
  echo "not run: compiling the CUDA kernels: nvcc is not installed (HALOGNN_CUDA=1 installs it; NVCC names another)"
elif ! out=$(make --silent --no-print-directory cuda 2>&1 >/dev/null); then # a warning fails too
  printf '%s\n' "$out"
  exit 1
elif [ -n "$out" ]; then
  printf 'nvcc warns:\n%s\n' "$out"
  exit 1
else
  echo "compiled and linked: build/libhalognn_cuda.so, $("${NVCC:-nvcc}" --version | sed -n 's/.*release //p')"
fi
if [ -f build/libhalognn_cuda.so ] && nvidia-smi -L >/dev/null 2>&1; then
  HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so go test -count=1 ./src/devices/compute/cuda
  HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so go test -count=1 -run 'Offboard|TenSteps|OnADevice|DrawnOnDevices' \
    ./src/runs/infer ./src/topology/sample ./src/runs/train
else
  echo "not run: the kernels on a GPU: there is none here, or no build/libhalognn_cuda.so; the suites ran on an emulated device"
fi
