#!/usr/bin/env bash
# pytorch.sh: trains a model, loads it into PyTorch, and compares the logits of both. Installs
# Debian's python3-torch if it may; otherwise it says why it did not run, and exits with 77.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
python=${PYTHON:-/usr/bin/python3}
has_torch() { "$python" -c 'import torch, numpy' >/dev/null 2>&1; }
leave_out() { echo "not run: $1"; exit 77; }
if ! has_torch; then
  command -v apt-get >/dev/null 2>&1 || leave_out "$python has no torch, and there is no apt-get; set PYTHON to one that has"
  [ "$(id -u)" = 0 ] || leave_out "$python has no torch, and only root may install python3-torch; set PYTHON to one that has it"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-torch python3-numpy; } >/dev/null 2>&1 ||
    leave_out "apt-get could not install python3-torch"
  has_torch || leave_out "$python has no torch, and python3-torch is for another Python; set PYTHON to that"
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
program=${HALOGNN:-bin/halognn}
for data in data weighted; do
  "$program" generate --kind sbm --vertices 3000 --degree 10 --features 16 --classes 5 --seed 1 --edge-weights="$([ $data = weighted ] && echo true || echo false)" \
    --out "$dir/$data" >/dev/null
  "$program" partition --data "$dir/$data" --parts 4 --method metis --seed 1 --out "$dir/$data-4" >/dev/null
done
cases=()
for model in "norm=none" "norm=layer" "aggregation=max" "kind=gcn" "kind=gcn gcn_norm=both norm=layer" "kind=gin norm=layer" "kind=gat activation=elu" \
  "kind=gat head_merge=mean heads=3" "kind=gatv2 activation=elu" "kind=gatv2 head_merge=mean heads=3" "kind=gcn residual=true norm=layer" "jumping=cat norm=layer" "kind=gat jumping=max" \
  "norm=batch" "kind=gcn norm=batch jumping=cat" "weights" "weights kind=gcn" "weights kind=gcn gcn_norm=both" "weights kind=gin norm=layer"; do
  run=$dir/${model// /,} sets=() data=data
  for set in $model; do if [ "$set" = weights ]; then data=weighted; else sets+=(--set "model.$set"); fi; done
  "$program" train --ranks-in-process 2 --config inputs/demo.yaml --set data.parts="$dir/$data-4" --set run.dir="$run" "${sets[@]}" \
    --set model.layers=3 --set sample.fanouts=5,4,3 --set train.epochs=2 >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
  "$program" infer --ranks-in-process 4 --run "$run" --logits --out "$run.npy" >/dev/null
  cases+=("$run" "$dir/$data" "$run.npy")
done
"$python" -W ignore tests/pytorch/logits.py "${cases[@]}"
# Both train on the same minibatches: the loss of every step agrees.
"$python" profiling/lab/gpu_vs_pyg.py --device cpu --halognn "$program" --work "$dir/compared" --vertices 20000 --degree 10 --columns 16 --classes 5 \
  --hidden 16 --fanouts 5,4,3 --batch 256 --epochs 1 --steps 20
