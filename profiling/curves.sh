#!/usr/bin/env bash
# curves.sh DATA...: do ranks that share minibatches learn what ranks with their own learn? GSplit's
# Figure 7 on the given datasets: trains parallel.mode data and split with the same global minibatch,
# and prints the validation metric after each epoch and that of the test at the end.
#
#   profiling/curves.sh data/fb100 data/computers
#
#   RANKS    of each run             [4]
#   MODELS   values of model.kind    [sage gat]
#   EPOCHS   of each run             [10]
#   SEEDS    values of train.seed    [1 2 3]
#   SETS     more settings           [model.layers=2 model.hidden=64 sample.fanouts=10,5
#                                     sample.batch=1024 train.lr=0.003]
#   OUT      where parts and runs go [run/curves]
#
# A column is the mean over the seeds, with the largest distance from it.
set -euo pipefail
cd "$(dirname "$0")/.."
CONFIG=${CONFIG:-inputs/products.yaml}
source profiling/runs.sh
out=${OUT:-run/curves} epochs=${EPOCHS:-10} seeds=${SEEDS:-1 2 3}
usual='model.layers=2 model.hidden=64 sample.fanouts=10,5 sample.batch=1024 train.lr=0.003'
read -ra sets <<<"${SETS:-$usual}"
mkdir -p "$out"

# values RUN: the metric of each validation, a line each, and that of the test
values() {
  sed -n 's/^{"kind":"eval".*"valid_metric":\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"
  number "$1" test_metric
}

need_dataset "$@"
for data in "$@"; do
  name=$(basename "$data") parts=$out/$(basename "$data")-$ranks
  [ -f "$parts/meta.json" ] ||
    "$program" partition --data "$data" --parts "$ranks" --seed 1 --out "$parts" >"$parts.log"
  for model in ${MODELS:-sage gat}; do
    files=()
    for mode in data split; do
      all=()
      for seed in $seeds; do
        dir=$out/$name-$model-$mode-$seed
        train as-is "$parts" "$dir" "${sets[@]}" sample.batch_scope=global cache.policy=none \
          parallel.mode=$mode model.kind="$model" train.epochs="$epochs" train.seed="$seed" \
          train.eval_every=1 run.ranks_per_node="$ranks"
        values "$dir" >"$dir.values"
        all+=("$dir.values")
      done
      paste -d' ' "${all[@]}" |
        awk '{ for (i = s = 0; i++ < NF;) s += $i
          for (i = d = 0; i++ < NF;) { x = $i - s / NF; if (x < 0) x = -x; if (x > d) d = x }
          printf "%.4f ± %.4f\n", s / NF, d }' >"$out/$name-$model-$mode.md"
      files+=("$out/$name-$model-$mode.md")
    done
    printf '\n%s, %s, %d ranks\n\n| epoch | data | split |\n|--:|--:|--:|\n' "$name" "$model" "$ranks"
    paste -d'|' "${files[@]}" | awk -F'|' -v n="$epochs" '
      { printf "| %s | %s | %s |\n", (NR > n ? "test" : NR), $1, $2 }'
  done
done
