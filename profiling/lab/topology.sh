#!/usr/bin/env bash
# topology.sh PARTS [OUT]: the cost of a topology that no rank holds whole. Trains the same model on
# the same minibatches on a replicated topology (FastSample, Figure 6: hybrid+fused) and on a
# partitioned one, and prints one table for each link speed. The check: all have the same
# loss_digest.
#
#   on a cluster, in an allocation
#     LAUNCH="srun -n 4" profiling/lab/topology.sh PARTS
#   on one machine with limited links
#     LAUNCH="profiling/lab/hosts.sh -n 4 -r %r --" RATES="1gbit 200mbit" \
#       profiling/lab/topology.sh PARTS
#
#   LAUNCH   how to start the ranks; %r stands for the link speed    [mpirun -np 4]
#   RATES    link speeds, one table each                             [as-is]
#   RANKS    as LAUNCH starts                                        [4]
#   CONFIG   what is trained                                         [inputs/slow-network.yaml]
#   REPEAT   runs of each; the fastest counts                        [2]
#   DEPTH    minibatches prepared ahead                              [4]
#   SETS     further settings, as "cache.policy=sieve"               [cache.policy=none]
#
# "goal" is the epoch of a partitioned topology divided by the sum of the epoch of a replicated one
# and the time in which a rank's link carries the bytes of the rounds, if the link speed is given as
# Nmbit or Ngbit.
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
parts=$1 out=${2:-run/topology}
need_parts "$parts"
repeat=${REPEAT:-2} depth=${DEPTH:-4}
read -ra sets <<<"${SETS:-cache.policy=none}"

rates=${RATES:-as-is}
for rate in $rates; do
  rm -rf "${out:?}/$rate" # runs of an earlier call must not count
  mkdir -p "$out/$rate"
  # The ways take turns, so that a busy minute of the machine does not affect only one.
  for ((k = 0; k < repeat; k++)); do
    for kind in replicated partitioned; do
      train "$rate" "$parts" "$out/$rate/$kind-$k" "${sets[@]}" topology.kind="$kind" \
        pipeline.depth="$depth"
    done
  done
  case $rate in
    *gbit) link=$(awk "BEGIN { print ${rate%gbit} * 125e6 }") ;;
    *mbit) link=$(awk "BEGIN { print ${rate%mbit} * 125e3 }") ;;
    *) link=0 ;;
  esac
  {
    printf '\nlink speed: %s, %d ranks, depth %s\n\n' "$rate" "$ranks" "$depth"
    printf '| topology | s/epoch | sample s | ask s | exchange s | sync s | waiting '
    printf '| rounds/step | sampling MB/epoch | rows MB/epoch | goal |\n'
    printf '|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n'
    for kind in replicated partitioned; do
      from=$(fastest "$out/$rate/$kind"-[0-9])
      best=$(number "$from" epoch_seconds) bytes=$(number "$from" sampling_bytes)
      [ $kind = partitioned ] || replicated=$best
      awk -v n="$kind" -v t="$best" -v s="$(number "$from" sample)" -v a="$(number "$from" ask)" \
        -v e="$(number "$from" exchange)" -v y="$(number "$from" sync)" \
        -v w="$(number "$from" wait_fraction)" -v r="$(number "$from" rounds_per_step)" \
        -v b="$bytes" -v x="$(number "$from" remote_bytes)" -v l="$link" -v k="$ranks" \
        -v f="$replicated" 'BEGIN {
          goal = "–"
          if (b > 0 && l > 0) goal = sprintf("%.2f", t / (f + b / k / l))
          printf "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f %% | %d | %.1f | %.1f | %s |\n",
            n, t, s, a, e, y, 100 * w, r, b / 1e6, x / 1e6, goal }'
    done
  } | tee "$out/$rate/table.md"
done
echo
same_digest "$out"/*/*-[0-9]
