#!/usr/bin/env bash
# topology.sh PARTS [OUT]: what it costs that no rank holds the whole topology. Trains the same
# model on the same minibatches on a partitioned and on a replicated topology, with either sampler,
# and prints one table per link speed: FastSample, Figure 6 (vanilla, hybrid, hybrid+fused), and the
# fused sampler on a partitioned topology. All must have one loss_digest: that is the check.
#
#   on a cluster, in an allocation          LAUNCH="srun -n 4" profiling/topology.sh parts/products-4
#   on one machine with limited links       LAUNCH="netlab -n 4 -r %r --" RATES="1gbit 200mbit" profiling/topology.sh parts/products-4
#     (netlab: see docs/results/slow-network.md)
#
#   LAUNCH   how to start the ranks; %r stands for the link speed    [mpirun -np 4]
#   RATES    link speeds, one table each                             [as-is]
#   RANKS    as LAUNCH starts                                        [4]
#   CONFIG   what is trained                                         [inputs/slow-network.yaml]
#   REPEAT   runs of each; the fastest counts                        [2]
#   DEPTH    minibatches prepared ahead                              [4]
#   SETS     further settings, as "cache.policy=sieve"               [cache.policy=none]
#
# "goal" is the epoch of a partitioned topology over that of a replicated one plus the time that its
# rounds' bytes take on the link of a rank, where the link speed is given as Nmbit or Ngbit.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:--h} in
  -h | --help)
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "profiling/$(basename "$0")"
    exit $(($# == 0 ? 2 : 0)) ;;
esac
parts=$1 out=${2:-run/topology}
[ -f "$parts/meta.json" ] ||
  { echo "topology.sh: $parts holds no parts; halognn partition makes them" >&2; exit 2; }
HALOGNN_QUIET=1 source ./env.sh
config=${CONFIG:-inputs/slow-network.yaml} ranks=${RANKS:-4}
repeat=${REPEAT:-2} depth=${DEPTH:-4}
launch=${LAUNCH:-$HALOGNN_MPIRUN -np $ranks}
program=${HALOGNN:-bin/halognn}
read -ra sets <<<"${SETS:-cache.policy=none}"
mkdir -p "$out"

#     name               topology     sampler
ways="vanilla            partitioned  coo
      hybrid             replicated   coo
      hybrid+fused       replicated   fused
      partitioned+fused  partitioned  fused"

number() { # of a run's summary
  sed -n "s/^ *\"$2\": \"\{0,1\}\([0-9a-z.+-]*\)\"\{0,1\},*$/\1/p" "$1/summary.json"
}

rates=${RATES:-as-is}
for rate in $rates; do
  rm -rf "${out:?}/$rate" # runs of an earlier call would be judged with these
  mkdir -p "$out/$rate"
  # The ways take turns, so that a busy minute of the machine does not fall on one of them.
  for ((k = 0; k < repeat; k++)); do
    while read -r name kind kernel; do
      dir=$out/$rate/$name-$k set=()
      for kv in "${sets[@]}" "topology.kind=$kind" "sample.kernel=$kernel" \
        "pipeline.depth=$depth" run.ranks_per_node=1; do
        set+=(--set "$kv")
      done
      # shellcheck disable=SC2086  # LAUNCH is a command with arguments
      ${launch//%r/$rate} "$program" train --config "$config" --set data.parts="$parts" \
        --set run.dir="$dir" "${set[@]}" >"$dir.log" 2>&1 </dev/null ||
        { echo "topology.sh: $name failed; see $dir.log" >&2; tail -5 "$dir.log" >&2; exit 1; }
    done <<<"$ways"
  done
  case $rate in
    *gbit) link=$(awk "BEGIN { print ${rate%gbit} * 125e6 }") ;;
    *mbit) link=$(awk "BEGIN { print ${rate%mbit} * 125e3 }") ;;
    *) link=0 ;;
  esac
  declare -A replicated=()
  {
    printf '\nlink speed: %s, %d ranks, depth %s\n\n' "$rate" "$ranks" "$depth"
    printf '| topology, sampler | s/epoch | sample s | ask s | exchange s | sync s | waiting '
    printf '| rounds/step | sampling MB/epoch | rows MB/epoch | goal |\n'
    printf '|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n'
    for name in hybrid hybrid+fused vanilla partitioned+fused; do
      best='' kernel=coo
      case $name in *fused) kernel=fused ;; esac
      for ((k = 0; k < repeat; k++)); do
        t=$(number "$out/$rate/$name-$k" epoch_seconds)
        if [ -z "$best" ] || awk "BEGIN { exit !($t < $best) }"; then
          best=$t from=$out/$rate/$name-$k
        fi
      done
      bytes=$(number "$from" sampling_bytes)
      [ "$bytes" != 0 ] || replicated[$kernel]=$best
      awk -v n="$name" -v t="$best" -v s="$(number "$from" sample)" -v a="$(number "$from" ask)" \
        -v e="$(number "$from" exchange)" -v y="$(number "$from" sync)" \
        -v w="$(number "$from" wait_fraction)" -v r="$(number "$from" rounds_per_step)" \
        -v b="$bytes" -v x="$(number "$from" remote_bytes)" -v l="$link" -v k="$ranks" \
        -v f="${replicated[$kernel]}" 'BEGIN {
          goal = "–"
          if (b > 0 && l > 0) goal = sprintf("%.2f", t / (f + b / k / l))
          printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f %% | %d | %.1f | %.1f | %s |\n",
            n, t, s, a, e, y, 100 * w, r, b / 1e6, x / 1e6, goal }'
    done
  } | tee "$out/$rate/table.md"
done
digests=$(for rate in $rates; do
  for s in "$out/$rate"/*/summary.json; do number "${s%/summary.json}" loss_digest; done
done | sort -u)
echo
if [ "$(wc -l <<<"$digests")" = 1 ]; then echo "check: all runs have loss_digest $digests"; else
  echo "check FAILED: loss digests differ:" "$digests"; exit 1
fi
