#!/usr/bin/env bash
# typed_vs_pyg.sh DATA [OUT]: compares the test accuracy on real graphs of several relations:
# trained by halognn on one rank, and the same model in PyTorch Geometric, with all neighbours and
# one minibatch an epoch; then by halognn with sampled neighbours. No epoch is chosen by validation.
# Uses SEEDS (10) seeds. Graphs with names in -bare lack their features, and learn rows. Writes
# OUT/typed.md. GRAPHS="aifb dblp-gat" chooses some graphs, FANOUTS=-1,-1 one list of fanouts.
# PYTHON is a Python with torch, torch_geometric and scipy (profiling/lab/peers/setup.sh makes one).
# Takes two or three hours; it does not repeat runs that are in OUT.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 1 "$@"
cd "$(dirname "$0")/../.."
data=$1 out=${2:-run/typed} seeds=${SEEDS:-10}
python=${PYTHON:-build/peers/bin/python}
export PYTHONPATH=$PWD/python HALOGNN=${HALOGNN:-$PWD/bin/halognn}
HALOGNN_QUIET=1 source ./env.sh
mkdir -p "$out"
#     name      graph kind hidden heads bases epochs lr    decay  dropout
jobs="aifb      aifb  rgcn 16     1     30    50     0.01  0.0005 0
      dblp-sage dblp  sage 64     1     0     60     0.005 0.001  0.5
      dblp-gat  dblp  gat  64     4     0     60     0.005 0.001  0.5
      acm-sage  acm   sage 64     1     0     60     0.005 0.001  0.5
      aifb-rows aifb-bare rgcn 16 1     30    50     0.01  0.0005 0
      dblp-rows dblp-bare rgcn 64 1     0     60     0.005 0.001  0.5
      acm-rows  acm-bare  rgcn 64 1     0     60     0.005 0.001  0.5"
halo() { # SEED FANOUTS: prints the fanouts and the accuracy
  local run="$out/$name-${2/-1,-1/all}-$1"
  if [ ! -f "$run/summary.json" ]; then
    rm -rf "$run"
    printf 'data: {parts: "%s"}\nrun: {dir: "%s"}\n' "$out/$graph-1" "$run" >"$run.yaml"
    "$HALOGNN" train --config "$run.yaml" --set train.seed="$1" \
      --set model.kind="$kind" --set model.layers=2 --set model.hidden="$hidden" \
      --set model.project="$hidden" --set model.heads="$heads" --set model.bases="$bases" \
      --set model.dropout="$dropout" --set model.norm=none --set train.epochs="$epochs" \
      --set train.lr="$lr" --set train.weight_decay="$decay" --set train.eval_every="$epochs" \
      --set sample.fanouts="$2" --set sample.batch=100000 --set cache.policy=none \
      --set model.learned="$learned" \
      >"$run.log" 2>&1 </dev/null || { cat "$run.log" >&2; return 1; }
  fi
  sed -n "s/^ *\"test_accuracy\": \([0-9.eE+-]*\),*$/$2 \1/p" "$run/summary.json"
}
pyg() { # prints the same for all seeds
  local log="$out/$name.pyg"
  [ "$(grep -c '^test accuracy' "$log" 2>/dev/null)" = "$seeds" ] ||
    "$python" profiling/lab/peers/pyg_typed.py "$out/$graph" --kind "$kind" --hidden "$hidden" \
      --heads "$heads" --bases "$bases" --learned "$hidden" --epochs "$epochs" --lr "$lr" --decay "$decay" \
      --dropout "$dropout" --seeds "$seeds" >"$log" 2>&1 </dev/null || { cat "$log" >&2; return 1; }
  sed -n 's/^test accuracy \([0-9.]*\),.*/pyg \1/p' "$log"
}
printf '%s\n' '| graph | model | | mean | standard error | difference | its standard error |' \
  '|---|---|---|--:|--:|--:|--:|' | tee "$out/typed.md"
for list in ${FANOUTS:--1,-1 10,10}; do
  while read -r name graph kind hidden heads bases epochs lr decay dropout; do
    case " ${GRAPHS:-aifb dblp-sage dblp-gat acm-sage aifb-rows dblp-rows acm-rows} " in *" $name "*) ;; *) continue ;; esac
    bare=() learned=0
    [[ $graph != *-bare ]] || bare=(--bare) learned=$hidden
    [ -d "$out/$graph" ] ||
      "$python" profiling/lab/peers/typed_data.py "${bare[@]}" "$data/${graph%-bare}" \
        "$out/$graph" >&2
    [ -d "$out/$graph-1" ] ||
      "$HALOGNN" partition --data "$out/$graph" --parts 1 --out "$out/$graph-1" >&2
    {
      pyg
      for ((seed = 0; seed < seeds; seed++)); do halo "$seed" "$list"; done
    } | awk -v row="| $graph | \`$kind\`" -v list="$list" '
      { n[$1]++; sum[$1] += 100 * $2; squares[$1] += (100 * $2) ^ 2 }
      function mean(k) { return sum[k] / n[k] }
      function variance(k) { return (squares[k] - sum[k] ^ 2 / n[k]) / (n[k] - 1) / n[k] }
      END {
        if (!n["pyg"] || !n[list]) exit 1
        if (list == "-1,-1")
          printf "%s | PyTorch Geometric | %.2f | %.2f | | |\n", row, mean("pyg"),
            sqrt(variance("pyg"))
        printf "%s | halognn, fanouts %s | %.2f | %.2f | %+.2f | %.2f |\n", row, list, mean(list),
          sqrt(variance(list)), mean(list) - mean("pyg"), sqrt(variance(list) + variance("pyg"))
      }' | tee -a "$out/typed.md"
  done <<<"$jobs"
done
