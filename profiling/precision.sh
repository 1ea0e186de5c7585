#!/usr/bin/env bash
# precision.sh DATA [OUT]: test accuracy of inputs/reference.yaml on one rank in float32 and in bf16,
# paired by seed, on the public graphs below DATA: the mean difference and its standard error. SEEDS
# ("0 1 2 3 4 5 6 7 8 9") and GRAPHS ("cora amazon cornell5 fb100-5") choose some. Writes
# OUT/table.md. Takes an hour; what is in OUT already is not run again.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/usage.sh" 1 "$@"
cd "$(dirname "$0")/.."
data=$1 out=${2:-run/precision}
HALOGNN_QUIET=1 source ./env.sh
mkdir -p "$out"
#       name     format    path             epochs lr    epochs between evaluations
graphs="cora     planetoid cora             30     0.01  1
        amazon   npz       amazon-computers 30     0.003 1
        cornell5 saint     cornell5-saint   30     0.01  5
        fb100-5  ogb       fb100-5/ogb      15     0.003 5"
accuracy() { # GRAPH PRECISION SEED EPOCHS LR EVERY
  local run="$out/$1-$2-$3"
  if [ ! -f "$run/summary.json" ]; then
    rm -rf "$run"
    bin/halognn train --config inputs/reference.yaml --set data.parts="$out/$1-1" \
      --set run.dir="$run" --set compute.precision="$2" --set train.seed="$3" \
      --set train.epochs="$4" --set train.lr="$5" --set train.eval_every="$6" \
      >"$run.log" 2>&1 </dev/null || { cat "$run.log" >&2; return 1; }
  fi
  sed -n 's/^ *"test_accuracy": \([0-9.eE+-]*\),*$/\1/p' "$run/summary.json"
}
printf '%s\n' '| data set | pairs | float32 | bf16 | difference | its standard error |' \
  '|---|--:|--:|--:|--:|--:|' | tee "$out/table.md"
while read -r name format path epochs lr every; do
  case " ${GRAPHS:-cora amazon cornell5 fb100-5} " in *" $name "*) ;; *) continue ;; esac
  [ -d "$out/$name" ] ||
    profiling/import.sh "$format" "$data/$path" "$out/$name" >&2
  [ -d "$out/$name-1" ] || bin/halognn partition --data "$out/$name" --parts 1 \
    --method contiguous --seed 1 --out "$out/$name-1" >&2
  for seed in ${SEEDS:-0 1 2 3 4 5 6 7 8 9}; do
    echo "$(accuracy "$name" float32 "$seed" "$epochs" "$lr" "$every")" \
      "$(accuracy "$name" bf16 "$seed" "$epochs" "$lr" "$every")"
  done | awk -v name="$name" '{ n++; a += $1; b += $2; d = $2 - $1; s += d; q += d * d }
    END {
      printf "| %s | %d | %.2f | %.2f | %+.2f |", name, n, 100*a/n, 100*b/n, 100*s/n
      if (n > 1) printf " %.2f", 100*sqrt((q - s*s/n) / (n - 1) / n)
      print " |" }' | tee -a "$out/table.md"
done <<<"$graphs"
