#!/usr/bin/env bash
# slow_network.sh PARTS [OUT]: what remote rows cost, and what overlap and caches win back. Trains
# the same model on the same minibatches under each way of getting rows, and prints one table per
# link speed: SALIENT++, Table 1 (full replication, partitioned, + pipeline, + cache), MassiveGNN,
# Figure 6 (baseline, prefetch, + eviction), and the look-ahead cache. All must have one
# loss_digest: that is the check.
#
#   on a cluster, in an allocation
#     LAUNCH="srun -n 4" profiling/slow_network.sh PARTS
#   on one machine with limited links
#     LAUNCH="netlab -n 4 -r %r --" RATES="1gbit 200mbit" profiling/slow_network.sh PARTS
#     (netlab stands for a wrapper of your own, not part of this repository, that starts -n ranks
#     of the command after --, each in a network namespace of its own whose link `tc ... tbf` limits
#     to -r)
#
#   LAUNCH   how to start the ranks; %r stands for the link speed    [mpirun -np 4]
#   RATES    link speeds, one table each                             [as-is]
#   RANKS    as LAUNCH starts                                        [4]
#   CONFIG   what is trained                                         [inputs/slow-network.yaml]
#   REPEAT   runs of each; the fastest counts                        [2]
#   ALPHA, DEPTH, GAMMA, DELTA                                       [0.2, 4, 0.995, 16]
#
# The first epoch, which fills pools and pipes, counts like the others: the time is the median over
# epochs.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:--h} in -h | --help) sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "profiling/$(basename "$0")"; exit $(($# == 0 ? 2 : 0)) ;; esac
parts=$1 out=${2:-run/slow-network}
[ -f "$parts/meta.json" ] || {
  echo "slow_network.sh: $parts holds no parts; halognn partition makes them" >&2
  exit 2
}
HALOGNN_QUIET=1 source ./env.sh
config=${CONFIG:-inputs/slow-network.yaml} ranks=${RANKS:-4} repeat=${REPEAT:-2}
alpha=${ALPHA:-0.2} depth=${DEPTH:-4} gamma=${GAMMA:-0.995} delta=${DELTA:-16}
launch=${LAUNCH:-$HALOGNN_MPIRUN -np $ranks}
program=${HALOGNN:-bin/halognn}
mkdir -p "$out"

#     name               depth     ranks per node  what else
ways="full-replication   $depth    $ranks          cache.policy=none
      partitioned        0         1               cache.policy=none
      +pipeline          $depth    1               cache.policy=none
      +cache(vip)        $depth    1               cache.policy=vip cache.alpha=$alpha
      prefetch           1         1               cache.policy=prefetch cache.alpha=$alpha cache.evict=false
      prefetch+eviction  1         1               cache.policy=prefetch cache.alpha=$alpha cache.gamma=$gamma cache.delta=$delta
      sieve              $depth    1               cache.policy=sieve cache.alpha=$alpha
      look-ahead         $depth    1               cache.policy=lookahead cache.alpha=$alpha"

number() { sed -n "s/^ *\"$2\": \"\{0,1\}\([0-9a-z.+-]*\)\"\{0,1\},*$/\1/p" "$1/summary.json"; }

train() { # train RATE NAME DEPTH RANKS_PER_NODE KEY=VALUE... : one run; its directory is in $dir
  local rate=$1 name=$2 d=$3 per_node=$4 set=() kv
  shift 4
  for kv in "$@"; do set+=(--set "$kv"); done
  rm -rf "$dir"
  # shellcheck disable=SC2086  # LAUNCH is a command with arguments
  ${launch//%r/$rate} "$program" train --config "$config" --set data.parts="$parts" \
    --set run.dir="$dir" --set run.ranks_per_node="$per_node" \
    --set pipeline.depth="$d" "${set[@]}" >"$dir.log" 2>&1 </dev/null ||
    {
      echo "slow_network.sh: $name failed; see $dir.log" >&2
      tail -5 "$dir.log" >&2
      exit 1
    }
}

rates=${RATES:-as-is}
for rate in $rates; do
  rm -rf "${out:?}/$rate" # runs of an earlier call would be judged with these
  # the ways take turns, so that a busy minute of the machine does not fall on one of them
  for ((k = 0; k < repeat; k++)); do
    while read -r name d per_node rest; do
      dir=$out/$rate/$name-$k
      mkdir -p "$out/$rate"
      # shellcheck disable=SC2086  # several settings
      train "$rate" "$name" "$d" "$per_node" $rest
    done <<<"$ways"
  done
  {
    printf '\nlink speed: %s, %d ranks, alpha %s, depth %s\n\n' "$rate" "$ranks" "$alpha" "$depth"
    printf '| rows by | s/epoch | of full replication | waiting | remote rows/epoch | hit rate | MB/s of a rank |\n|---|--:|--:|--:|--:|--:|--:|\n'
    full=''
    while read -r name _; do
      best=''
      for ((k = 0; k < repeat; k++)); do
        t=$(number "$out/$rate/$name-$k" epoch_seconds)
        if [ -z "$best" ] || awk "BEGIN { exit !($t < $best) }"; then
          best=$t from=$out/$rate/$name-$k
        fi
      done
      full=${full:-$best}
      awk -v n="$name" -v t="$best" -v f="$full" -v w="$(number "$from" wait_fraction)" \
        -v r="$(number "$from" remote_rows)" \
        -v h="$(number "$from" hit_rate)" -v b="$(number "$from" remote_bytes)" -v k="$ranks" \
        'BEGIN { printf "| %s | %.2f | %.2f | %.1f %% | %d | %.3f | %.1f |\n", n, t, t / f, 100 * w, r, h, b / t / k / 1e6 }'
    done <<<"$ways"
  } | tee "$out/$rate/table.md"
done
digests=$(for rate in $rates; do
  for s in "$out/$rate"/*/summary.json; do number "${s%/summary.json}" loss_digest; done
done | sort -u)
echo
if [ "$(wc -l <<<"$digests")" = 1 ]; then echo "check: all runs have loss_digest $digests"; else
  echo "check FAILED: loss digests differ:" "$digests"; exit 1
fi
