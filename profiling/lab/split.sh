#!/usr/bin/env bash
# split.sh DATA [OUT]: when are ranks that train each minibatch together faster than ranks with
# minibatches of their own? Repeats GSplit's Table 3 and Figure 6 with the values of parallel.mode,
# for the same global minibatch. Partitions the dataset for each mode, trains, and prints a table
# for each link speed, number of ranks and model.
#
#   profiling/lab/split.sh data/products                                       one node
#   PER_NODE=1 RATES="1gbit 200mbit" LAUNCH="profiling/lab/hosts.sh -n %n -r %r --" \
#     profiling/lab/split.sh data/products                                     limited links
#   PER_NODE=2 RANKS="2 4 8" RATES=1gbit LAUNCH="profiling/lab/hosts.sh -n %h -p 2 -r %r --" \
#     profiling/lab/split.sh data/products                                     nodes of two ranks
#
#   RANKS     numbers of ranks                                   [2 4]
#   MODELS    values of model.kind                               [sage gat]
#   WAYS      names of the ways to compare, see below              [all]
#   PER_NODE  ranks of a node                                    [all of them]
#   RATES     link speeds                                        [as-is]
#   LAUNCH    how to start %n ranks on %h nodes over links of speed %r   [mpirun -np %n]
#   SETS      more settings, as "train.epochs=2"                 [none]
#   CASES     further ones, separated by ";", with tables of their own, as
#             "model.hidden=64; model.layers=2 sample.fanouts=15,10"   [none]
#   CACHE     cache.policy of data and hybrid                    [none]
#   REPEAT    runs of each, in turns; the fastest counts, beside the mean of all   [2]
#   CONFIG    what is trained                                    [inputs/products.yaml]
#
# data draws the seeds of a rank from its part, data-global from the whole graph, as DGL does. The
# parts of split are weighted by what sampling draws, those of split-edge by edges and seeds
# (GSplit's baseline Edge). hybrid has the parts of split; it is another mode only on several nodes
# of several ranks (PER_NODE). push-pull (P3) has the parts and seeds of data, and is left out for
# models that it cannot train. Columns are seconds of an epoch, means over ranks: sampling; loading;
# forward and backward; sending hidden rows or sums. Stages overlap, so they do not add up to the
# epoch.
set -euo pipefail
cd "$(dirname "$0")/../.."
numbers=${RANKS:-2 4} CONFIG=${CONFIG:-inputs/products.yaml} RANKS=''
source profiling/runs.sh
data=$1 out=${2:-run/split}
need_dataset "$data"
template=${LAUNCH:-$HALOGNN_MPIRUN -np %n} repeat=${REPEAT:-2}
read -ra sets <<<"${SETS:-}"
IFS=';' read -ra cases <<<"${CASES:-}"
[ ${#cases[@]} -gt 0 ] || cases=('')
mkdir -p "$out"

#     name         weights    settings
ways="data         data       parallel.mode=data
      data-global  data       parallel.mode=data sample.seeds=global
      split        presample  parallel.mode=split
      split-edge   edge       parallel.mode=split
      hybrid       presample  parallel.mode=hybrid
      push-pull    data       parallel.mode=push-pull"
[ -z "${WAYS:-}" ] || ways=$(awk -v names=" $WAYS " 'index(names, " " $1 " ")' <<<"$ways")

# cut RANKS WEIGHTS: partitions the dataset for the given number of ranks
cut() {
  local sampled=()
  [ "$2" = data ] || sampled=(--config "$config" --set sample.batch_scope=global)
  [ -f "$out/parts-$1-$2/meta.json" ] || "$program" partition --data "$data" --parts "$1" \
    --weights "$2" "${sampled[@]}" --seed 1 --out "$out/parts-$1-$2" >"$out/parts-$1-$2.log"
}

# seconds DIR PHASE...: the sum of these phases
seconds() {
  local dir=$1 phase
  shift
  for phase in "$@"; do number "$dir" "$phase"; done | awk '{ x += $1 } END { printf "%.2f", x }'
}

# mean DIR...: the mean epoch of the runs and, if there are several, its standard error
mean() {
  local dir
  for dir in "$@"; do number "$dir" epoch_seconds; done | awk '
    { n++; x += $1; xx += $1 * $1 }
    END {
      x /= n
      if (n == 1) printf "%.2f", x
      else { v = (xx / n - x * x) / (n - 1); printf "%.2f ± %.2f", x, sqrt(v > 0 ? v : 0) }
    }'
}

# compare RATE RANKS MODEL CASE: trains all ways, and prints their table
compare() {
  local rate=$1 ranks=$2 model=$3 dir t base='' run runs name weights rest k
  local per=${PER_NODE:-$2} ways=$ways more launch policy
  [ "$per" -le "$2" ] || per=$2
  launch=${template//%n/$2} launch=${launch//%h/$(($2 / per))}
  [[ $model != gat* ]] || ways=$(grep -v push-pull <<<"$ways")
  read -ra more <<<"$4"
  dir=$out/$1-$2-$3${more[*]:+-$(tr -c 'a-z0-9\n' - <<<"${more[*]}")}
  # the ways take turns, so that a busy minute of the machine does not affect only one
  for ((k = 0; k < repeat; k++)); do
    while read -r name weights rest; do
      cut "$ranks" "$weights"
      policy=none
      [[ $name = split* || $name = push-pull ]] || policy=${CACHE:-none}
      # shellcheck disable=SC2086  # several settings
      train "$rate" "$out/parts-$ranks-$weights" "$dir-$name-$k" $rest model.kind="$model" \
        sample.batch_scope=global cache.policy="$policy" train.eval_every=0 \
        run.ranks_per_node="$per" "${sets[@]}" "${more[@]}"
    done <<<"$ways"
  done
  printf '\n%s, %d ranks, link speed %s%s\n\n' "$model" "$ranks" "$rate" "${4:+, $4}"
  printf '| mode | s/epoch | mean of all runs | data / it | sample | load | compute | shuffle | '
  printf 'waiting | edges | rows loaded | MB received |\n'
  printf '|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n'
  while read -r name _; do
    runs=()
    for ((k = 0; k < repeat; k++)); do runs+=("$dir-$name-$k"); done
    run=$(fastest "${runs[@]}")
    t=$(number "$run" epoch_seconds)
    base=${base:-$t}
    awk -v n="$name" -v t="$t" -v m="$(mean "${runs[@]}")" -v b="$base" \
      -v s="$(seconds "$run" sample ask)" \
      -v l="$(seconds "$run" plan exchange slice gather)" \
      -v c="$(seconds "$run" forward backward)" -v h="$(seconds "$run" shuffle)" \
      -v w="$(number "$run" wait_fraction)" -v e="$(number "$run" computed_edges)" \
      -v f="$(number "$run" loaded_rows)" -v r="$(number "$run" remote_bytes)" \
      -v x="$(number "$run" shuffle_bytes)" 'BEGIN {
        printf "| %s | %.2f | %s | %.2f | %s | %s | %s | %s | %.0f %% | %.2f M | %.2f M | %.0f |\n",
          n, t, m, b / t, s, l, c, h, 100 * w, e / 1e6, f / 1e6, (r + x) / 1e6 }'
  done <<<"$ways"
}

for rate in ${RATES:-as-is}; do
  for ranks in $numbers; do
    for model in ${MODELS:-sage gat}; do
      for case in "${cases[@]}"; do compare "$rate" "$ranks" "$model" "$case"; done
    done
  done
done
