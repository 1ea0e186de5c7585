#!/usr/bin/env bash
# accuracy_vs_pyg.sh DATA [OUT]: compares the test accuracy of each kind of model, trained by
# halognn on 4 ranks and with PyTorch Geometric's layers in one process, with the settings of
# inputs/reference.yaml and the same split, for seeds 0, 1 and 2. Writes OUT/models.md. PYTHON is a
# Python with torch, dgl and torch_geometric (profiling/lab/peers/setup.sh makes one).
# MODELS="sage gat" and GRAPHS="cora citeseer" choose some of them. Takes an hour; it does not repeat
# runs that are in OUT.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 1 "$@"
cd "$(dirname "$0")/../.."
data=$1 out=${2:-run/models}
python=${PYTHON:-build/peers/bin/python}
HALOGNN_QUIET=1 source ./env.sh
mkdir -p "$out"
#       name     format    path             epochs lr    epochs between evaluations
graphs="cora     planetoid cora             30     0.01  1
        citeseer planetoid citeseer         30     0.01  1
        amazon   npz       amazon-computers 30     0.003 5
        fb100-5  ogb       fb100-5/ogb      5      0.003 5"
halo() { # GRAPH MODEL SEED EPOCHS LR EVERY
  local run="$out/$1-$2-$3" kind=${2%%-*} sets=()
  [ ! -f "$run/summary.json" ] || return 0
  case $2 in
    *-max) sets+=(--set model.aggregation=max) ;;
    *-jumping) sets+=(--set model.jumping=cat) ;;
  esac
  rm -rf "$run"
  "$HALOGNN_MPIRUN" -np 4 bin/halognn train --config inputs/reference.yaml \
    --set data.parts="$out/$1-4" --set run.dir="$run" --set model.kind="$kind" \
    --set train.seed="$3" --set train.epochs="$4" --set train.lr="$5" \
    --set train.eval_every="$6" "${sets[@]}" \
    >"$run.log" 2>&1 </dev/null || { cat "$run.log" >&2; return 1; }
}
pyg() { # GRAPH MODEL SEED EPOCHS LR EVERY
  local log="$out/$1-$2-$3.pyg" kind=$2 more=()
  ! grep -q '^test accuracy' "$log" 2>/dev/null || return 0
  case $2 in *-jumping) kind=${2%-jumping} more=(--jumping) ;; esac
  "$python" profiling/lab/peers/pyg_accuracy.py "$out/$1" --kind "$kind" --seed "$3" \
    --epochs "$4" --lr "$5" --every "$6" --hidden 128 --fanouts 10,10 --batch 512 \
    "${more[@]}" >"$log" 2>&1 </dev/null || { cat "$log" >&2; return 1; }
}
printf '%s\n' '| data set | model | halognn | | | mean | PyG | | | mean | difference |' \
  '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|' | tee "$out/models.md"
while read -r name format path epochs lr every; do
  case " ${GRAPHS:-cora citeseer amazon fb100-5} " in *" $name "*) ;; *) continue ;; esac
  [ -d "$out/$name" ] ||
    profiling/lab/import.sh "$format" "$data/$path" "$out/$name" >&2
  [ -d "$out/$name-4" ] || bin/halognn partition --data "$out/$name" --parts 4 --method metis \
    --seed 1 --out "$out/$name-4" >&2
  for model in ${MODELS:-sage sage-max sage-jumping gcn gin gat gatv2}; do
    row=()
    for seed in 0 1 2; do
      halo "$name" "$model" "$seed" "$epochs" "$lr" "$every"
      row+=("$(sed -n 's/^ *"test_accuracy": \([0-9.eE+-]*\),*$/\1/p' \
        "$out/$name-$model-$seed/summary.json")")
    done
    for seed in 0 1 2; do
      pyg "$name" "$model" "$seed" "$epochs" "$lr" "$every"
      row+=("$(sed -n 's/^test accuracy //p' "$out/$name-$model-$seed.pyg")")
    done
    echo "$name $model ${row[*]}" | awk '{ h = ($3 + $4 + $5) / 3; p = ($6 + $7 + $8) / 3
      printf "| %s | %s | %.2f | %.2f | %.2f | %.2f |", $1, $2, 100*$3, 100*$4, 100*$5, 100*h
      printf " %.2f | %.2f | %.2f | %.2f | %+.2f |\n", 100*$6, 100*$7, 100*$8, 100*p, 100*(h - p)
    }' | tee -a "$out/models.md"
  done
done <<<"$graphs"
