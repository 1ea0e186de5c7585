#!/usr/bin/env bash
# locality.sh PARTS [OUT]: Figures 7 to 9 of data placement (ICS 2022): the training loss with and
# without locality-aware draws, and the final test accuracy. The ranks of a group share caches of
# the hottest rows (cache.placement=group), and all other rows come from the files. Trains, for each
# sampler and each shape of groups,
#
#   1       without locality
#   adapt   a factor that adapts to the share of loading, up to MAXS
#   number  favours near vertices by this factor from the first epoch on
#
# and prints the mean loss of some epochs, the number of rows that no cache of the group holds, and
# the test accuracy of the epoch with the best validation, over the seeds.
#
#   KINDS     samplers                                       [ladies poisson]
#   GROUPS_   ranks/ranks of a group                         [2/2 4/2]
#   COSTS     of a peer's row, one for each of GROUPS_       [0 0.2], as in the paper
#   FACTORS   of these 1 comes first                         [1 8 64 adapt]
#   MAXS      the most that adapt reaches                    [8]
#   LINK      bytes/s at which a rank gets far rows          [125e6]
#   EDGES     that a rank draws and trains in a second       [measured: the first run's]
#   SIZE      rows of a rank's cache over all vertices       [0.2]
#   SEEDS     train.seed of the runs                         [1 2 3]
#   VERTICES  that ladies draws for a layer                  [512]
#   NEAR      vertices of an inner layer that are favoured   [512]
#   FANOUTS, BATCH, EPOCHS, SHOWN (epochs)                   [5,5,5 128 30 "1 2 5 10 20 30"]
#   SETS      further settings, as "model.hidden=512"        [none]
#
# The check: two runs with the last factor, but different depth and threads, have the same
# loss_digest.
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
parts=$1 out=${2:-run/locality}
need_parts "$parts"
kinds=${KINDS:-ladies poisson} most=${MAXS:-8}
link=${LINK:-125e6} size=${SIZE:-0.2} seeds=${SEEDS:-1 2 3} epochs=${EPOCHS:-30}
vertices=${VERTICES:-512} near=${NEAR:-512} fanouts=${FANOUTS:-5,5,5} batch=${BATCH:-128}
shown=${SHOWN:-1 2 5 10 20 30}
read -ra factors <<<"${FACTORS:-1 8 64 adapt}"
read -ra costs <<<"${COSTS:-0 0.2}"
read -ra further <<<"${SETS:-}"
mkdir -p "$out"

# near_run DIR KIND FACTOR SEED KEY=VALUE...: trains with a factor, or with one that adapts.
near_run() {
  local dir=$1 kind=$2 factor=$3 seed=$4 policy=vip draws=("sample.locality=$3")
  shift 4
  [ "$kind" = ladies ] && policy=sim
  if [ "$factor" = adapt ]; then
    draws=(sample.locality="$most" sample.locality_adapt=true sample.locality_link="$link"
      sample.locality_edges="$edges")
  fi
  launch="$HALOGNN_MPIRUN -np $ranks"
  train as-is "$parts" "$dir" run.ranks_per_node="$node" sample.kind="$kind" \
    sample.layer_vertices="$vertices" sample.locality_vertices="$near" sample.fanouts="$fanouts" \
    sample.batch="$batch" sample.seeds=global train.epochs="$epochs" train.seed="$seed" \
    train.eval_every=5 cache.source=files cache.placement=group cache.peer_cost="$cost" \
    cache.policy=$policy cache.alpha="$(awk -v k="$ranks" -v s="$size" 'BEGIN { print k * s }')" \
    "${draws[@]}" "${further[@]}" "$@"
}

# epochs_of DIR KEY: the numbers of all epochs, a line each.
epochs_of() {
  sed -n "/\"kind\":\"epoch\"/s/.*[,{]\"$2\":\([0-9.e+-]*\)[,}].*/\1/p" "$1/metrics.jsonl"
}

# edges_per_second DIR: edges that a rank samples and trains in a second.
edges_per_second() {
  local phase of=()
  for phase in sample forward backward update; do of+=("$(number "$1" $phase)"); done
  awk -v e="$(number "$1" computed_edges)" -v k="$ranks" -v t="${of[*]}" 'BEGIN {
    n = split(t, x, " "); for (i = 1; i <= n; i++) s += x[i]; printf "%.3g", e / k / s }'
}

mean() { awk '{ s += $1; q += $1 * $1 } END { m = s / NR; v = q / NR - m * m
  printf "%.2f ± %.2f", 100 * m, 100 * sqrt(v > 0 ? v : 0) }'; }

group=0
for shape in ${GROUPS_:-2/2 4/2}; do
  ranks=${shape%/*} node=${shape#*/} cost=${costs[group]}
  group=$((group + 1))
  for kind in $kinds; do
    runs=$out/$kind-$ranks-$node edges=${EDGES:-1}
    mkdir -p "$runs"
    for factor in "${factors[@]}"; do
      for seed in $seeds; do
        near_run "$runs/$factor-$seed" "$kind" "$factor" "$seed"
        [ "$edges" != 1 ] || edges=$(edges_per_second "$runs/$factor-$seed")
      done
    done
    first=${seeds%% *}
    printf '\n%s, %s ranks in groups of %s: loss of the epochs (seed %s); %s edges/s a rank\n\n' \
      "$kind" "$ranks" "$node" "$first" "$edges"
    printf '| epoch |'
    printf ' %s |' "${factors[@]}"
    printf '\n|--:|'
    printf -- '--:|%.0s' "${factors[@]}"
    printf '\n'
    for epoch in $shown; do
      printf '| %s |' "$epoch"
      for factor in "${factors[@]}"; do
        printf ' %.4f |' "$(epochs_of "$runs/$factor-$first" loss | sed -n "${epoch}p")"
      done
      printf '\n'
    done
    printf '\n| factor | in the last epoch | far rows, last epoch | to 1 | test accuracy, %% |\n'
    printf '|---|--:|--:|--:|--:|\n'
    base=
    for factor in "${factors[@]}"; do
      far=$(epochs_of "$runs/$factor-$first" stored_rows | tail -1)
      : "${base:=$far}"
      last=$factor
      [ "$factor" != adapt ] || last=$(epochs_of "$runs/$factor-$first" locality_factor | tail -1)
      printf '| %s | %s | %s | %s | %s |\n' "$factor" "$last" "$far" \
        "$(awk -v a="$far" -v b="$base" 'BEGIN { printf "%.2f", b ? a / b : 1 }')" \
        "$(for seed in $seeds; do number "$runs/$factor-$seed" test_accuracy; done | mean)"
    done
    echo
    near_run "$runs/again" "$kind" "${factors[-1]}" "$first" pipeline.depth=0 pipeline.workers=2
    same_digest "$runs/again" "$runs/${factors[-1]}-$first"
  done
done
