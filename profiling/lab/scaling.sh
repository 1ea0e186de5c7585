#!/usr/bin/env bash
# scaling.sh PARTS [OUT]: strong scaling. Trains with 1, 2, 4 and 8 ranks, each on a network host of
# its own with a share of this machine's processors, and compares each epoch with what `halognn
# plan` predicts for that many ranks, from rates that it measures here. Then it plans for more ranks
# than can run here. A rank's batch stays the same, so on twice the ranks an epoch has half as many
# steps.
#
#   halognn partition --data data --parts 8 --out parts
#   profiling/lab/scaling.sh parts
#
#   RANKS    numbers of ranks to run; may be empty    [1 2 4 8]
#   PLANNED  numbers to plan for; may be empty        [8 16 32 64 128 256 512]
#   RATE     what each host may send, in tc's form    [1gbit]
#   NETWORK  the same in GB/s                         [0.125]
#   CORES    processor time of each host              [0.25]
#   CONFIG   what is trained                          [inputs/products.yaml]
#   SETS     further settings, as "model.hidden=64"   [none]
set -euo pipefail
cd "$(dirname "$0")/../.."
CONFIG=${CONFIG:-inputs/products.yaml}
counts=${RANKS-1 2 4 8}
RANKS=1
source profiling/runs.sh
parts=$1 out=${2:-run/scaling}
need_parts "$parts"
planned=${PLANNED-8 16 32 64 128 256 512} rate=${RATE:-1gbit} network=${NETWORK:-0.125}
cores=${CORES:-0.25}
read -ra sets <<<"${SETS:-}"
rm -rf "$out"
mkdir -p "$out"

# plan K: sets predicted to the seconds of an epoch on K ranks, and binds to what limits it.
plan() {
  local flags=() kv
  for kv in "${sets[@]}"; do flags+=(--set "$kv"); done
  "$program" plan --config "$config" --parts "$parts" --ranks "$1" --ranks-per-node 1 \
    --cores "$cores" --network "$network" --out "$out/plan-$1" "${flags[@]}" >"$out/plan-$1.log"
  local file=$out/plan-$1/plan.json
  predicted=$(awk -v s="$(value "$file" step)" -v n="$(value "$file" steps_per_epoch)" \
    'BEGIN { printf "%.2f", s * n }')
  binds=$(value "$file" binds)
}
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$1" | head -1; }

run() {
  local k first='' last='' seconds
  printf 'Run, %s cores a rank, links of %s:\n\n' "$cores" "$rate"
  printf '| ranks | s an epoch | times faster | a doubling | planned, s | measured / planned '
  printf '| binds |\n|--:|--:|--:|--:|--:|--:|---|\n'
  for k in $counts; do
    plan "$k"
    launch="profiling/lab/hosts.sh -n $k -r $rate -c $cores --"
    train as-is "$parts" "$out/ranks-$k" "${sets[@]}" train.epochs=2 train.eval_every=0
    seconds=$(number "$out/ranks-$k" epoch_seconds)
    first=${first:-$seconds}
    awk -v k="$k" -v s="$seconds" -v f="$first" -v l="${last:-$seconds}" -v p="$predicted" \
      -v b="$binds" 'BEGIN {
        printf "| %d | %.2f | %.2f | %.2f | %s | %.2f | %s |\n", k, s, f / s, l / s, p, s / p, b }'
    last=$seconds
  done
}

only_plan() {
  local k last=''
  printf '\nPlanned alone:\n\n| ranks | s an epoch | a doubling | binds |\n|--:|--:|--:|---|\n'
  for k in $planned; do
    plan "$k"
    awk -v k="$k" -v s="$predicted" -v l="${last:-$predicted}" -v b="$binds" 'BEGIN {
      printf "| %d | %s | %.2f | %s |\n", k, s, l / s, b }'
    last=$predicted
  done
}

[ -z "$counts" ] || run
[ -z "$planned" ] || only_plan
