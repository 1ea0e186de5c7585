#!/usr/bin/env bash
# precision.sh DATA [OUT]: compares the test accuracy of inputs/reference.yaml in OTHER [bf16] with
# that in float32, on one rank, paired by seed, on the public graphs below DATA: prints the mean
# difference and its standard error. OTHER is a compute.precision; or float16 or int8, a type of
# feature rows; or gradients: then both run on RANKS [4] ranks, one with train.gradient_dtype bf16.
# SEEDS ("0 1 2 3 4 5 6 7 8 9") and GRAPHS ("cora amazon cornell5 fb100-5", citeseer) choose some.
# Writes OUT/table.md. Takes an hour; it does not repeat runs that are in OUT.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 1 "$@"
cd "$(dirname "$0")/../.."
data=$1 out=${2:-run/precision}
HALOGNN_QUIET=1 source ./env.sh
other=${OTHER:-bf16} key=compute.precision ranks=1
rows='' method=contiguous # rows: suffix of the parts' names if feature rows have another type
case $other in
  float16 | int8) rows=-$other ;;
  gradients) key=train.gradient_dtype ranks=${RANKS:-4} method=metis ;;
esac
mkdir -p "$out"
#       name     format    path             epochs lr    epochs between evaluations
graphs="cora     planetoid cora             30     0.01  1
        citeseer planetoid citeseer         30     0.01  1
        amazon   npz       amazon-computers 30     0.003 1
        cornell5 saint     cornell5-saint   30     0.01  5
        fb100-5  ogb       fb100-5/ogb      15     0.003 5"
accuracy() { # GRAPH PRECISION ROWS SEED EPOCHS LR EVERY
  local run="$out/$1-$2$3-$4"
  if [ ! -f "$run/summary.json" ]; then
    rm -rf "$run"
    bin/halognn train --config inputs/reference.yaml --set data.parts="$out/$1-$ranks$3" \
      --ranks-in-process "$ranks" \
      --set run.dir="$run" --set "$key=$2" --set train.seed="$4" \
      --set train.epochs="$5" --set train.lr="$6" --set train.eval_every="$7" \
      >"$run.log" 2>&1 </dev/null || { cat "$run.log" >&2; return 1; }
  fi
  sed -n 's/^ *"test_accuracy": \([0-9.eE+-]*\),*$/\1/p' "$run/summary.json"
}
printf '%s\n' "| data set | pairs | float32 | $other | difference | its standard error |" \
  '|---|--:|--:|--:|--:|--:|' | tee "$out/table.md"
while read -r name format path epochs lr every; do
  case " ${GRAPHS:-cora amazon cornell5 fb100-5} " in *" $name "*) ;; *) continue ;; esac
  for of in '' $rows; do
    [ -d "$out/$name$of" ] || profiling/lab/import.sh "$format" "$data/$path" "$out/$name$of" \
      ${of:+--feature-type "${of#-}"} >&2
    [ -d "$out/$name-$ranks$of" ] || bin/halognn partition --data "$out/$name$of" --parts "$ranks" \
      --method "$method" --seed 1 --out "$out/$name-$ranks$of" >&2
  done
  precision=$other
  [ "$key" != train.gradient_dtype ] || precision=bf16
  [ -z "$rows" ] || precision=float32
  for seed in ${SEEDS:-0 1 2 3 4 5 6 7 8 9}; do
    echo "$(accuracy "$name" float32 '' "$seed" "$epochs" "$lr" "$every")" \
      "$(accuracy "$name" "$precision" "$rows" "$seed" "$epochs" "$lr" "$every")"
  done | awk -v name="$name" '{ n++; a += $1; b += $2; d = $2 - $1; s += d; q += d * d }
    END {
      printf "| %s | %d | %.2f | %.2f | %+.2f |", name, n, 100*a/n, 100*b/n, 100*s/n
      if (n > 1) printf " %.2f", 100*sqrt((q - s*s/n) / (n - 1) / n)
      print " |" }' | tee -a "$out/table.md"
done <<<"$graphs"
