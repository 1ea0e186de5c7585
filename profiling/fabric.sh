#!/usr/bin/env bash
# fabric.sh PARTS [OUT]: how a job scales on networks that are not there. For each number of ranks
# it plans the job, replays the trace with SimGrid (profiling/replay.sh) on links of several rates,
# and prints seconds of a step, and what the counts alone allow: K / (growth of the edges of a step
# x imbalance), relative to the first number of ranks.
#
#   RANKS="2 4 8 16 32" FLAGS="--cores 2" SETS="sample.batch=16384 sample.batch_scope=global" \
#     profiling/fabric.sh parts
#
#   RANKS   numbers of ranks             [2 4 8 16 32]    NODE  ranks of a node     [1]
#   GBIT    rates of a node's link       [25 200]         CONFIG [inputs/products.yaml]
#   LATENCY seconds of a link; SimGrid takes 1.6 to 3.5 times as long for messages of up to 64 KB,
#           and 11.6 times for larger ones                                               [25e-6]
#   LEAF    nodes of a leaf switch that send as one, if there are twice as many or more  [1]
#   TREE    that many nodes a leaf switch of a fat tree of two levels; each node has its
#           own path                                                                     [none]
#   FLAGS   further flags of plan, as "--cores 16 --flops 1e12"                          [none]
#   SETS    further settings, as "sample.batch=1024"                                     [none]
#   NAME    the first column                                                             [as is]
set -euo pipefail
cd "$(dirname "$0")/.."
CONFIG=${CONFIG:-inputs/products.yaml}
counts=${RANKS:-2 4 8 16 32}
RANKS=1
source profiling/runs.sh
parts=$1 out=${2:-run/fabric} node=${NODE:-1}
need_parts "$parts"
read -ra flags <<<"${FLAGS:-}"
read -ra sets <<<"${SETS:-}"
for kv in "${sets[@]}"; do flags+=(--set "$kv"); done
mkdir -p "$out"

value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$1" | head -1; }
# vectors PLAN: the rows and sums that a step sends.
vectors() {
  awk -v rows="$(value "$1" remote_rows)" -v sums="$(value "$1" sum_vectors)" \
    'BEGIN { printf "%.0f", rows + sums }'
}
# busy DIR: the seconds that the busiest process of a rank computes in the longer trace, and all do.
busy() {
  cat "$1"/more/*.pool "$1"/more/*.trainer "$1"/more/*.bus | awk '
    $2 == "compute" { of[$1] += $3 / 1e9 }
    END { for (p in of) { sum += of[p]; if (of[p] > most) most = of[p] } print most, sum }'
}

echo '| what | ranks | Gbit/s | s a step | without a network | efficiency | times faster |' \
  'counts allow | rows or sums | processes; simulated in |'
echo '|---|--:|--:|--:|--:|--:|--:|--:|--:|---|'
declare -A first
for k in $counts; do
  dir=$out/$k leaf=1
  rm -rf "$dir"
  mkdir -p "$dir"
  [ $((k / node)) -lt $((2 * ${LEAF:-1})) ] || leaf=${LEAF:-1}
  "$program" plan --config "$config" --parts "$parts" --ranks "$k" --ranks-per-node "$node" \
    --leaf "$leaf" --network 1 --trace "$dir/trace" --out "$dir/plan" "${flags[@]}" \
    >"$dir/plan.log" 2>&1 || {
    tail -5 "$dir/plan.log" >&2
    exit 1
  }
  plan=$dir/plan/plan.json
  edges=$(awk '/"edges"/ { on = 1; next } on && /]/ { exit } on { sum += $1 }
    END { print sum }' "$plan")
  if [ -n "${TREE:-}" ]; then # one up-link for each node of a leaf
    tree="2;$TREE,$((k / node / TREE));1,$TREE;1,1"
    sed -i "s/<cluster id/<cluster topology=\"FAT_TREE\" topo_parameters=\"$tree\" id/" \
      "$dir/trace/platform.xml"
  fi
  for gbit in ${GBIT:-25 200}; do
    bytes=$(awk -v g="$gbit" -v l="$leaf" 'BEGIN { printf "%.0f", g * l * 1e9 / 8 }')
    sed -i "s/ bw=\"[^\"]*\"/ bw=\"${bytes}Bps\"/
      s/ lat=\"[^\"]*\"/ lat=\"${LATENCY:-25e-6}s\"/" \
      "$dir/trace/platform.xml"
    profiling/replay.sh "$dir/trace" >"$dir/replay-$gbit"
    read -r step ideal took <<<"$(awk '/^seconds of/ { s = $NF } /^on an ideal/ { i = $NF }
      /^processes/ { print s, i, $2 $(NF - 1) "s" }' "$dir/replay-$gbit")"
    read -r most all <<<"$(busy "$dir/trace")"
    : "${first[$gbit]:=$k $step $edges $most $all}"
    awk -v name="${NAME:-as is}" -v k="$k" -v gbit="$gbit" -v s="$step" -v i="$ideal" \
      -v e="$edges" -v most="$most" -v all="$all" -v first="${first[$gbit]}" \
      -v rows="$(vectors "$plan")" -v took="$took" '
      BEGIN {
        split(first, f, " ")
        # imbalance: the busiest process over the mean one, relative to the first number of ranks
        allows = k / f[1] / (k * e / f[1] / f[3]) / ((most * k / all) / (f[4] * f[1] / f[5]))
        sub(",", "; ", took)
        printf "| %s | %d | %d | %.5f | %.5f | %.1f %% | %.2f | %.2f | %.0f | %s |\n", name, k,
          gbit, s, i, 100 * i / s, f[2] / s, allows, rows, took
      }'
  done
done
