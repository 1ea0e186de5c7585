#!/usr/bin/env bash
# slow_network.sh PARTS [OUT]: the cost of remote rows, and how much overlap and caches save. Trains
# the same model on the same minibatches with each way of getting rows, and prints one table for
# each link speed: SALIENT++, Table 1 (full replication, partitioned, + pipeline, + cache),
# MassiveGNN, Figure 6 (baseline, prefetch, + eviction), the look-ahead cache, and sums made by the
# owners of rows, without and with that cache, and with rows sent in pieces. The check: all have the
# same loss_digest.
#
#   on a cluster, in an allocation
#     LAUNCH="srun -n 4" profiling/lab/slow_network.sh PARTS
#   on one machine with limited links
#     LAUNCH="profiling/lab/hosts.sh -n 4 -r %r --" RATES="1gbit 200mbit" \
#       profiling/lab/slow_network.sh PARTS
#
#   LAUNCH   how to start the ranks; %r stands for the link speed    [mpirun -np 4]
#   RATES    link speeds, one table each                             [as-is]
#   RANKS    as LAUNCH starts                                        [4]
#   CONFIG   what is trained                                         [inputs/slow-network.yaml]
#   REPEAT   runs of each; the fastest counts                        [2]
#   ALPHA, DEPTH, GAMMA, DELTA                                       [0.2, 4, 0.995, 16]
#   WINDOW   bytes of rows under way from a rank, in the last line   [750000]
#   WAYS     some of the ways, by name                               [all]
#
# The first epoch, which fills pools and pipes, counts like the others: the time is the median over
# epochs.
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
parts=$1 out=${2:-run/slow-network}
need_parts "$parts"
repeat=${REPEAT:-2}
alpha=${ALPHA:-0.2} depth=${DEPTH:-4}
decay="cache.leave=score cache.gamma=${GAMMA:-0.995} cache.delta=${DELTA:-16}"
window=${WINDOW:-750000}

# Full replication is a cache of all that is ever read (SALIENT++, section 5.2: alpha = K - 1).
#     name               depth     what else
ways="full-replication   $depth    cache.policy=vip cache.alpha=$((ranks - 1))
      partitioned        0         cache.policy=none
      +pipeline          $depth    cache.policy=none
      +cache(vip)        $depth    cache.policy=vip cache.alpha=$alpha
      prefetch           1         cache.policy=prefetch cache.alpha=$alpha cache.evict=false
      prefetch+eviction  1         cache.policy=prefetch cache.alpha=$alpha $decay
      sieve              $depth    cache.policy=sieve cache.alpha=$alpha
      look-ahead         $depth    cache.policy=lookahead cache.alpha=$alpha
      sums               $depth    cache.policy=none exchange.sums=on
      sums+look-ahead    $depth    cache.policy=lookahead cache.alpha=$alpha exchange.sums=on
      sums+l.a.+window   $depth    cache.policy=lookahead cache.alpha=$alpha exchange.sums=on \
                                   exchange.window=$window"
[ -z "${WAYS:-}" ] || ways=$(awk -v some=" $WAYS " 'index(some, " " $1 " ")' <<<"$ways")

rates=${RATES:-as-is}
for rate in $rates; do
  rm -rf "${out:?}/$rate" # runs of an earlier call must not count
  mkdir -p "$out/$rate"
  # the ways take turns, so that a busy minute of the machine does not affect only one
  for ((k = 0; k < repeat; k++)); do
    while read -r name d rest; do
      # shellcheck disable=SC2086  # several settings
      train "$rate" "$parts" "$out/$rate/$name-$k" pipeline.depth="$d" $rest
    done <<<"$ways"
  done
  {
    printf '\nlink speed: %s, %d ranks, alpha %s, depth %s\n\n' "$rate" "$ranks" "$alpha" "$depth"
    echo '| rows by | s/epoch | of full replication | waiting | remote rows/epoch | hit rate' \
      '| MB/s of a rank |'
    echo '|---|--:|--:|--:|--:|--:|--:|'
    full=''
    while read -r name _; do
      from=$(fastest "$out/$rate/$name"-[0-9])
      best=$(number "$from" epoch_seconds)
      full=${full:-$best}
      awk -v n="$name" -v t="$best" -v f="$full" -v w="$(number "$from" wait_fraction)" \
        -v r="$(number "$from" remote_rows)" \
        -v h="$(number "$from" hit_rate)" -v b="$(number "$from" remote_bytes)" -v k="$ranks" \
        'BEGIN { printf "| %s | %.2f | %.2f | %.1f %% | %d | %.3f | %.1f |\n",
                   n, t, t / f, 100 * w, r, h, b / t / k / 1e6 }'
    done <<<"$ways"
  } | tee "$out/$rate/table.md"
done
echo
same_digest "$out"/*/*-[0-9]
