#!/usr/bin/env bash
# bench_gpu.sh [kernels]: benchmarks on a GPU. First kernels, compared with the bandwidth of a copy
# and cuBLAS's fastest product in the same run. Then, unless only kernels are wanted, epochs of
# training, with each kernel of a step in the step's roofline; and the same model on the same
# minibatches in PyTorch and PyTorch Geometric, if these are installed. `make bench-gpu` builds what
# it needs. A line names each part that did not run. For a machine without Go, CUDA_TEST names the
# tests of compute/cuda, built by `go test -c`, and WITH a command that runs them.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 0 "$@"
cd "$(dirname "$0")/../.."
HALOGNN_QUIET=1 source ./env.sh
export HALOGNN_CUDA_LIB=${HALOGNN_CUDA_LIB:-$PWD/build/libhalognn_cuda.so}
nvidia-smi --query-gpu=name,memory.total,clocks.max.mem,driver_version --format=csv ||
  case $HALOGNN_CUDA_LIB in
    *emulated*) echo "the device is emulated: times mean nothing" ;;
    *)
      echo "bench_gpu.sh: there is no GPU here; nothing was measured" >&2
      exit 69
      ;;
  esac
flags=(-test.run '^$' -test.bench . -test.benchtime "${BENCHTIME:-200x}" -test.count "${COUNT:-5}")
if [ -n "${CUDA_TEST:-}" ]; then
  # shellcheck disable=SC2086 # a command, or nothing
  (cd src/devices/compute/cuda && ${WITH:-} "$CUDA_TEST" "${flags[@]}")
else
  go test "${flags[@]}" ./src/devices/compute/cuda
fi
[ "${1:-}" != kernels ] || exit 0

work=${WORK:-run/bench-gpu} epochs=${EPOCHS:-4} program=${HALOGNN:-bin/halognn}
rm -rf "$work" && mkdir -p "$work"
"$program" generate --kind rmat --vertices "${VERTICES:-1000000}" --degree 20 --features 128 \
  --classes 32 --seed 1 --out "$work/data"
"$program" partition --data "$work/data" --parts 1 --method contiguous --seed 1 --out "$work/parts"
common=(--config inputs/reference.yaml --set "data.parts=$work/parts" --set model.layers=3
  --set model.hidden=256 --set "sample.fanouts=15,10,5" --set "pipeline.depth=$(nproc)"
  --set sample.batch=1024 --set "train.epochs=$epochs" --set train.eval_every=0
  --set train.eval_mode=sampled --set compute.device=cuda)
for rows in 0 0.25 1; do
  echo "== compute.gpu_rows=$rows: epochs; then with each kernel measured, which takes longer"
  "$program" train "${common[@]}" --set "compute.gpu_rows=$rows" --set "run.dir=$work/rows-$rows"
  "$program" train "${common[@]}" --set "compute.gpu_rows=$rows" \
    --set "run.dir=$work/kernels-$rows" --kernels
done
python=${PYTHON:-python3}
if ! "$python" -c 'import numpy' 2>/dev/null; then
  echo "not run: PyTorch and PyG: $python has no numpy (PYTHON names another)"
  exit 0
fi
for rows in device host; do
  echo "== PyTorch, feature rows: $rows"
  "$python" profiling/lab/gpu_vs_pyg.py --halognn "$program" --work "$work/compared-$rows" \
    --data "$work/data" --parts "$work/parts" --epochs "$epochs" --features $rows
done
