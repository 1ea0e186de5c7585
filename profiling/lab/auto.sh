#!/usr/bin/env bash
# auto.sh PARTS...: does cache.policy auto find the fastest cache? Trains the same minibatches with
# every cache setting that a user would try, and with auto, on each of the given parts; prints one
# table for each, and says how far auto is from the fastest.
#
#   on a cluster, in an allocation
#     LAUNCH="srun -n 4" profiling/lab/auto.sh PARTS
#   on one machine with limited links
#     LAUNCH="profiling/lab/hosts.sh -n 4 -r %r --" RATES="1gbit 200mbit" \
#       profiling/lab/auto.sh PARTS
#
#   LAUNCH   how to start the ranks; %r stands for the link speed    [mpirun -np 4]
#   RATES    link speeds, one table each                             [as-is]
#   RANKS    as LAUNCH starts                                        [4]
#   CONFIG   what is trained                                         [inputs/slow-network.yaml]
#   SETS     more settings, as "sample.batch=64 model.hidden=32"     [none]
#   REPEAT   runs of each                                            [2]
#   WAYS     names of the settings to compare with auto               [all]
#   EPOCHS   of a run; auto tries caches in the first third          [12]
#   ALPHA, DEPTH                                                     [0.2, 4]
#   OUT      where runs and tables go                                [run/auto]
#
# An epoch's time is the median over the second half of the epochs of all runs, when auto has made
# its choice. The column beside it, the sum of all epochs of a run, shows the cost of the trials.
# The check fails if auto takes more than 5 % longer than the fastest, or if any loss differs.
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
need_parts "$@"
repeat=${REPEAT:-2} epochs=${EPOCHS:-12} out=${OUT:-run/auto}
alpha=${ALPHA:-0.2} depth=${DEPTH:-4} score=cache.leave=score

#     name                  settings
ways="none                  cache.policy=none
      degree                cache.policy=degree
      vip                   cache.policy=vip
      sieve                 cache.policy=sieve
      prefetch-0.95-16      cache.policy=prefetch $score cache.gamma=0.95 cache.delta=16
      prefetch-0.95-64      cache.policy=prefetch $score cache.gamma=0.95 cache.delta=64
      prefetch-0.995-16     cache.policy=prefetch $score cache.gamma=0.995 cache.delta=16
      prefetch-0.995-64     cache.policy=prefetch $score cache.gamma=0.995 cache.delta=64
      lookahead-4           cache.policy=lookahead cache.window=4
      lookahead             cache.policy=lookahead
      auto                  cache.policy=auto"
[ -z "${WAYS:-}" ] || ways=$(awk -v names=" $WAYS " '$1 == "auto" || index(names, " " $1 " ")' \
  <<<"$ways")

# epoch_seconds RUN: the seconds of each epoch, a line each
epoch_seconds() {
  sed -n 's/^{"kind":"epoch".*"seconds":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl"
}
# seconds DIR...: the median over the second half of the epochs of the runs, and the sum of all
# epochs of a run
seconds() {
  local dir
  for dir in "$@"; do
    epoch_seconds "$dir" | tail -n +$((epochs / 2 + 1))
  done | sort -g | awk '
    { t[NR] = $1 } END { printf "%.5f ", (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2 }'
  for dir in "$@"; do epoch_seconds "$dir"; done |
    awk -v runs=$# '{ sum += $1 } END { printf "%.4f\n", sum / runs }'
}

# table DIR: the runs of each way, and auto compared with the fastest of the others
table() {
  local dir=$1 name k t sum runs
  while read -r name _; do
    runs=()
    for ((k = 0; k < repeat; k++)); do runs+=("$dir/$name-$k"); done
    read -r t sum <<<"$(seconds "${runs[@]}")"
    echo "$name $t $sum $(number "$dir/$name-0" remote_rows) $(number "$dir/$name-0" wait_fraction)"
  done <<<"$ways" | awk '
    { name[NR] = $1; t[NR] = $2; all[NR] = $3; rows[NR] = $4; wait[NR] = $5 }
    $1 != "auto" && (!best || $2 < t[best]) { best = NR }
    END {
      print "| cache | s/epoch | of the fastest | s, all epochs | remote rows/epoch | waiting |"
      print "|---|--:|--:|--:|--:|--:|"
      for (i = 1; i <= NR; i++)
        printf "| %s | %.3f | %.3f | %.2f | %d | %.1f %% |\n",
          name[i], t[i], t[i] / t[best], all[i], rows[i], 100 * wait[i]
      ratio = t[NR] / t[best]
      printf "\n%s: auto takes %.3f of the fastest set by hand, %s\n",
        ratio <= 1.05 ? "check" : "check FAILED", ratio, name[best]
    }'
  grep -h -o '"chosen": ".*"' "$dir"/auto-*/summary.json | sort -u
}

failed=0
for rate in ${RATES:-as-is}; do
  for parts in "$@"; do
    dir=$out/$rate/$(basename "$parts")
    rm -rf "$dir" # runs of an earlier call must not count
    mkdir -p "$dir"
    # the ways take turns, so that a busy minute of the machine does not affect only one
    for ((k = 0; k < repeat; k++)); do
      while read -r name rest; do
        # shellcheck disable=SC2086  # several settings
        train "$rate" "$parts" "$dir/$name-$k" pipeline.depth="$depth" cache.alpha="$alpha" \
          train.epochs="$epochs" $rest ${SETS:-}
      done <<<"$ways"
    done
    {
      printf '\n%s, link speed %s, %d ranks, alpha %s, depth %s, %d epochs\n\n' \
        "$(basename "$parts")" "$rate" "$ranks" "$alpha" "$depth" "$epochs"
      table "$dir"
      same_digest "$dir"/*-[0-9] || true # only the printed verdict counts
    } | tee "$dir/table.md"
    ! grep -q 'check FAILED' "$dir/table.md" || failed=1
  done
done
exit $failed
