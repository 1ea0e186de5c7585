#!/usr/bin/env bash
# bench_gpu.sh: kernels of compute/cuda beside the bandwidth that this device copies at in the same run, matrix products beside their FLOPs, an
# epoch of training, and the same model in PyTorch Geometric where it is installed. Needs a GPU; `make bench-gpu` builds what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
nvidia-smi --query-gpu=name,memory.total,clocks.max.mem,driver_version --format=csv || { echo "bench_gpu.sh: there is no GPU here; nothing was measured" >&2; exit 69; }
export HALOGNN_CUDA_LIB=$PWD/build/libhalognn_cuda.so
go test -run '^$' -bench . -benchtime 200x -count "${COUNT:-5}" ./src/compute/cuda

work=${WORK:-run/bench-gpu}
rm -rf "$work" && mkdir -p "$work"
bin/halognn generate --kind rmat --vertices "${VERTICES:-1000000}" --degree 20 --features 128 --classes 32 --seed 1 --out "$work/data"
bin/halognn partition --data "$work/data" --parts 1 --method contiguous --seed 1 --out "$work/parts"
common=(--config inputs/reference.yaml --set "data.parts=$work/parts" --set model.hidden=256 --set "sample.fanouts=[15,10,5]" --set sample.batch=1024
  --set train.epochs=4 --set train.eval_every=0 --set compute.device=cuda)
nvidia-smi dmon -s u -c 100000 >"$work/utilisation.txt" 2>/dev/null & # one line a second: the share of time in which a kernel ran
watch=$!
trap 'kill $watch 2>/dev/null || true' EXIT
for rows in 0 0.25 1; do
  echo "== compute.gpu_rows=$rows"
  bin/halognn train "${common[@]}" --set "compute.gpu_rows=$rows" --set "run.dir=$work/rows-$rows"
done
awk '$1 ~ /^[0-9]+$/ {n++; sum += $2} END {if (n) printf "GPU idle: %.1f %% of %d s, evaluation and set-up included\n", 100 - sum/n, n}' "$work/utilisation.txt"
if python3 -c 'import torch, torch_geometric; assert torch.cuda.is_available()' 2>/dev/null; then
  python3 profiling/gpu_vs_pyg.py --data "$work/data"
else
  echo "not run: PyTorch Geometric on the GPU: torch and torch_geometric are not installed, or torch sees no GPU"
fi
