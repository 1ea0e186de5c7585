#!/usr/bin/env bash
# accuracy.sh DATA [OUT]: trains the plain GraphSAGE of inputs/reference.yaml on public graphs below
# DATA, on 4 ranks, with seeds 0, 1 and 2, and compares the mean test accuracy with the reference
# mean. Fails if one is more than a point below it. Takes minutes to an hour. REFERENCE_SETS="cora
# amazon" chooses some of the graphs.
set -euo pipefail
cd "$(dirname "$0")/.."
data=${1:?usage: accuracy.sh DATA [OUT]} out=${2:-run/accuracy}
HALOGNN_QUIET=1 source ./env.sh
mkdir -p "$out"
#      name      format     path               epochs lr    reference mean
sets="cora      planetoid  cora               30     0.01  79.47
      amazon    npz        amazon-computers   30     0.003 91.75
      cornell5  saint      cornell5-saint     30     0.01  85.23
      fb100-5   ogb        fb100-5/ogb        15     0.003 78.08"
fail=0
printf '| data set | seed 0 | seed 1 | seed 2 | mean | reference | difference | s/epoch |\n|---|--:|--:|--:|--:|--:|--:|--:|\n' | tee "$out/table.md"
while read -r name format path epochs lr reference; do
  case " ${REFERENCE_SETS:-cora amazon cornell5 fb100-5} " in *" $name "*) ;; *) continue ;; esac
  [ -d "$out/$name" ] || profiling/lab/import.sh "$format" "$data/$path" "$out/$name" >&2
  [ -d "$out/$name-4" ] || bin/halognn partition --data "$out/$name" --parts 4 --method metis \
    --seed 1 --out "$out/$name-4" >&2
  for seed in 0 1 2; do
    [ -f "$out/$name-$seed/summary.json" ] || { rm -rf "$out/$name-$seed"; "$HALOGNN_MPIRUN" \
      -np 4 bin/halognn train --config inputs/reference.yaml \
      --set data.parts="$out/$name-4" --set run.dir="$out/$name-$seed" --set train.seed=$seed \
      --set train.epochs="$epochs" --set train.lr="$lr" >"$out/$name-$seed.log" 2>&1 </dev/null; }
  done
  number() { sed -n "s/^ *\"$2\": \([0-9.eE+-]*\),*$/\1/p" "$out/$name-$1/summary.json"; }
  awk -v name="$name" -v a="$(number 0 test_accuracy)" -v b="$(number 1 test_accuracy)" \
    -v c="$(number 2 test_accuracy)" \
    -v t="$(number 0 epoch_seconds)" -v r="$reference" 'BEGIN {
      m = 100 * (a + b + c) / 3
      printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %+.2f | %.2f |\n", name, 100*a, 100*b, 100*c, m, r, m - r, t
      exit m < r - 1 }' | tee -a "$out/table.md" || fail=1
done <<<"$sets"
[ $fail = 0 ] || { echo "a mean is more than one point below its reference" >&2; exit 1; }
