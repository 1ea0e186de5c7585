#!/usr/bin/env bash
# replayed.sh PARTS [OUT]: compares SimGrid's replays of `halognn plan --trace` with runs of as many
# ranks, each on a network host of its own with an equal share of this machine's processors. What a
# step computes is taken from a run on links without a limit, because the rates of ranks that share
# cores are not those of ranks that have their own. Prints seconds of a step: of the run, and
# replayed on its links and without a network.
#
#   halognn partition --data data --parts 8 --method metis --seed 1 --out parts
#   profiling/lab/replayed.sh parts
#
#   RANKS   numbers of ranks                     [2 4 8]
#   RATES   what each host may send, in tc's form [1gbit 200mbit]
#   CONFIG  what is trained                      [inputs/products.yaml]
#   EPOCHS  epochs of a run                      [2]
#   SETS    further settings, as "sample.batch=256" [none]
# Runs that OUT has are not repeated, unless they were of other parts, settings or epochs.
set -euo pipefail
cd "$(dirname "$0")/../.."
CONFIG=${CONFIG:-inputs/products.yaml}
counts=${RANKS:-2 4 8}
RANKS=1
source profiling/runs.sh
parts=$1 out=${2:-run/replayed}
need_parts "$parts"
read -ra sets <<<"${SETS:-} exchange.sums=off compute.threads=1 pipeline.workers=1"
mkdir -p "$out"
out=$(cd "$out" && pwd)
key=$(echo "$(cd "$parts" && pwd)" "$config" "${EPOCHS:-2}" "${sets[@]}"
  cksum "$config" "$parts/meta.json")
[ "$key" = "$(cat "$out/key" 2>/dev/null)" ] || rm -rf "$out"/ranks-*
echo "$key" >"$out/key"

# bytes RATE: bytes a second of a rate of tc.
bytes() {
  awk -v r="$1" 'BEGIN {
    n = r + 0; if (r ~ /g/) n *= 1e9; else if (r ~ /m/) n *= 1e6; else if (r ~ /k/) n *= 1e3
    printf "%.0f", r ~ /bit/ ? n / 8 : n }'
}

# value FILE KEY: a number of a JSON file.
value() { sed -n "s/^ *\"$2\": \([^,]*\),*$/\1/p" "$1" | head -1; }

# rates RUN PLAN: the flags of plan with which training and preparing take as long as in a run. PLAN
# was made with --flops 1e11 --rows 1e7.
rates() {
  local phase steps
  steps=$(number "$1" steps_per_epoch)
  for phase in forward backward update sample plan slice gather; do
    echo "run $phase $(sed -n "/^  \"phase_seconds\"/,/}/s/^ *\"$phase\": \([^,]*\),*$/\1/p" \
      "$1/summary.json")"
  done | awk -v n="$steps" -v train="$(value "$2" t_train)" -v copy="$(value "$2" t_copy)" \
    -v other="$(value "$2" t_sample) $(value "$2" t_lookup)" '
    { of[$2] = $3 / n }
    END {
      split(other, o, " ")
      pool = of["sample"] + of["plan"] + of["slice"] + of["gather"] - o[1] - o[2]
      printf "--flops %.0f --rows %.0f",
        1e11 * train / (of["forward"] + of["backward"] + of["update"]),
        1e7 * copy / (pool > copy / 100 ? pool : copy / 100)
    }'
}

# plan K FLAG...: plans K ranks.
plan() {
  local k=$1 flags=() kv
  shift
  for kv in "${sets[@]}"; do flags+=(--set "$kv"); done
  "$program" plan --config "$config" --parts "$parts" --ranks "$k" --ranks-per-node 1 --cores 2 \
    "$@" "${flags[@]}" >"$out/plan-$k.log" 2>&1 || {
    tail -5 "$out/plan-$k.log" >&2
    exit 1
  }
}

# latency DIR RATE IDEAL STEPS: seconds that a message waits on a shaped link for what was sent
# before. Its queue holds 50 ms (hosts.sh): it is full where the link is the limit, and otherwise
# now and then holds the rest of the rows of a minibatch. SimGrid multiplies the latency of large
# messages by 11.6, and a route has two links, so it is divided here.
latency() {
  cat "$1"/more/*.lane | awk -v rate="$(bytes "$2")" -v ideal="$3" -v steps="$4" '
    $2 == "isend" { of[$1] += $5 / steps }
    END {
      for (p in of) if (of[p] > most) most = of[p]
      busy = most / rate; used = busy / ideal
      wait = used >= 1 ? 0.05 : used * busy / 2
      printf "%.6f", (wait > 0.05 ? 0.05 : wait) / 11.6436 / 2 + 25e-6
    }'
}

echo '| ranks | a host sends | s a step, measured | replayed | replayed / measured |' \
  'replayed without a network |'
echo '|--:|---|--:|--:|--:|--:|'
for k in $counts; do
  cores=$(awk -v k="$k" -v n="$(nproc)" 'BEGIN { print n / k }')
  for rate in none ${RATES:-1gbit 200mbit}; do
    launch="profiling/lab/hosts.sh -n $k -r $rate -c $cores --"
    [ -f "$out/ranks-$k-$rate/summary.json" ] || # a run that is there is not repeated
      train as-is "$parts" "$out/ranks-$k-$rate" "${sets[@]}" train.epochs="${EPOCHS:-2}" \
        train.eval_every=0
  done
  trace=$out/trace-$k
  rm -rf "$trace" "$out/plan-$k"
  plan "$k" --flops 1e11 --rows 1e7 --out "$out/plan-$k"
  # shellcheck disable=SC2046  # words of their own
  plan "$k" $(rates "$out/ranks-$k-none" "$out/plan-$k/plan.json") --trace "$trace"
  profiling/replay.sh "$trace" >"$trace.replay"
  ideal=$(awk '/^on an ideal/ { print $NF }' "$trace.replay")
  for rate in ${RATES:-1gbit 200mbit}; do
    run=$out/ranks-$k-$rate
    steps=$(grep -c compute "$trace/more/0.trainer")
    wait=$(latency "$trace" "$rate" "$ideal" "$steps")
    sed -i "s/ bw=\"[^\"]*\"/ bw=\"$(bytes "$rate")Bps\"/; s/ lat=\"[^\"]*\"/ lat=\"${wait}s\"/" \
      "$trace/platform.xml"
    profiling/replay.sh "$trace" >"$run.replay"
    awk -v k="$k" -v rate="$rate" -v s="$(number "$run" epoch_seconds)" \
      -v n="$(number "$run" steps_per_epoch)" '
      /^seconds of a step/ { on = $NF } /^on an ideal/ { ideal = $NF }
      END {
        printf "| %d | %s | %.3f | %.3f | %.2f | %.3f |\n", k, rate, s / n, on, on / s * n, ideal
      }' "$run.replay"
  done
done
