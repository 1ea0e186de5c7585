#!/usr/bin/env bash
# placement.sh DATASET [OUT]: where ranks that read each other's caches find rows, and what that
# costs (data placement, ICS 2022): Figures 4 to 6, 10 and 11, and Table 2. Every rank caches the
# same number of rows. It reads rows in the caches of its group in shared memory, and others from
# the files (cache.source=files):
#
#   METHOD  each rank holds the hottest rows of its own part of a partition (cache.placement=parts)
#   alone   each rank holds the rows that it reads most, for itself (own)
#   ours    the group divides its hottest rows, given the cost of a peer's row (group)
#   near    the same, and favours vertices at hand by the factor LOCALITY: ours + locality
#
# each with seeds from the whole graph, and with seeds from each rank's part of the last METHOD.
# simulate counts the rows, but training counts those of near, whose draws depend on the cache. At
# one size the other ways are trained too: to get the seconds of sampling and computing, and to
# check that training reads the rows that simulate counted.
#
#   KIND     sampler; neighbour has no near                [poisson]
#   LOCALITY, NEAR (vertices of an inner layer to favour)  [8 8192]
#   METHODS  partitions to compare with                    [contiguous metis]
#   PARTS    of each: the ranks of the largest group       [4]
#   GROUPS_  ranks/ranks of a group, one table each        [2/2 4/2 4/4]
#   SIZES    rows of a rank's cache over all vertices      [0.1 0.2 0.25]
#   COSTS    of a peer's row, one for each of GROUPS_      [0 0.2 0], as in the paper
#   LINK     bytes/s at which a rank would get far rows    [125e6]
#   TRAINED  the size that is trained; empty: none         [0.2]
#   RATE     also trains that size with each group on a network host of this machine (hosts.sh). Far
#            rows then come from their owners, over links of this rate, as 1gbit. METHOD has no cache
#            then, as a rank owns the rows that it would hold. Needs root                 [none]
#   VERTICES  that ladies draws for a layer                [8192]
#   FANOUTS, BATCH, EPOCHS, SETS (further settings)        [5,5,5 64 2 -]
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
data=$1 out=${2:-run/placement}
need_dataset "$data"
methods=${METHODS:-contiguous metis} parts=${PARTS:-4}
kind=${KIND:-poisson} locality=${LOCALITY:-8} near=${NEAR:-8192}
sizes=${SIZES:-0.1 0.2 0.25} link=${LINK:-125e6} trained=${TRAINED-0.2}
fanouts=${FANOUTS:-5,5,5} batch=${BATCH:-64} epochs=${EPOCHS:-2}
vertices=${VERTICES:-8192} policy=vip
[ "$kind" != ladies ] || policy=sim # ladies has no fanouts
read -ra costs <<<"${COSTS:-0 0.2 0}"
read -ra further <<<"${SETS:-}"
hosts=
mkdir -p "$out"

# placed DIR PARTS SIZE KEY=VALUE...: trains with SIZE times all vertices in a rank's cache.
placed() {
  local dir=$1 from=$2 size=$3
  shift 3
  launch=${hosts:-$HALOGNN_MPIRUN -np $ranks}
  train as-is "$from" "$dir" run.ranks_per_node="$node" sample.fanouts="$fanouts" \
    sample.kind="$kind" sample.batch="$batch" sample.seeds="$seeds" train.epochs="$epochs" \
    sample.layer_vertices="$vertices" cache.policy="$policy" cache.source=files \
    cache.alpha="$(alphas "$ranks" "$size")" \
    cache.peer_cost="$cost" cache.placement="$placement" "${further[@]}" "$@"
}

# seconds WAY DIR: prints a line of the table of times.
seconds() {
  echo "$1" "$(number "$2" stored_rows)" "$(number "$2" sample)" "$(number "$2" forward)" \
    "$(number "$2" backward)" "$(number "$2" update)" "$(number "$2" rank)" \
    "$(number "$2" bytes)" "$(number "$2" capacity_rows)"
}

alphas() { awk -v k="$1" -v s="$2" 'BEGIN { n = split(s, x, " ")
  for (i = 1; i <= n; i++) printf "%s%.6g", (i > 1 ? "," : ""), x[i] * k }'; }

printf 'dividing the graph into %s parts\n\n| method | s |\n|---|--:|\n' "$parts"
for method in $methods; do
  begin=$(date +%s.%N)
  "$program" partition --quiet --data "$data" --parts "$parts" --method "$method" --seed 1 \
    --allow-imbalance --force --out "$out/$method" >"$out/$method.log" 2>&1
  awk -v method="$method" -v begin="$begin" -v end="$(date +%s.%N)" \
    'BEGIN { printf "| %s | %.1f |\n", method, end - begin }'
done
first=${methods%% *} last=${methods##* }

group=0
for shape in ${GROUPS_:-2/2 4/2 4/4}; do
  ranks=${shape%/*} node=${shape#*/} cost=${costs[group]}
  group=$((group + 1))
  rows=$out/rows-$ranks-$node.txt times=$out/times-$ranks-$node.txt
  : >"$rows"
  : >"$times"
  ways='' shared='ours near'
  [ "$kind" != neighbour ] || shared=ours
  for way in $methods alone $shared; do ways="$ways $way:global:$first"; done
  for way in "$last" alone $shared; do ways="$ways $way:local:$last"; done
  for line in $ways; do
    IFS=: read -r way seeds dir <<<"$line"
    case $way in
      alone) placement=own ;;
      ours | near) placement=group ;;
      *) placement=parts dir=$way ;;
    esac
    to=$out/$way-$seeds-$ranks-$node way=$way:$seeds
    rm -rf "$to"
    if [ "${way%:*}" = near ]; then
      for size in $sizes; do
        placed "$to-$size" "$out/$dir" "$size" sample.locality="$locality" \
          sample.locality_vertices="$near"
        awk -v way="$way" -v size="$size" -v epochs="$epochs" -v cost="$cost" \
          -v own="$(number "$to-$size" cache_hits)" -v far="$(number "$to-$size" stored_rows)" \
          -v peer="$(number "$to-$size" peer_cache_rows)" 'BEGIN {
            printf "%s %g %d %d %d %d %d %.1f\n", way, size, epochs, epochs * (own + peer + far),
              epochs * own, epochs * peer, epochs * far, far + cost * peer }' >>"$rows"
        [ "$size" != "$trained" ] || seconds "$way" "$to-$size" >>"$times"
      done
      continue
    fi
    "$program" simulate --quiet --parts "$out/$dir" --ranks "$ranks" --ranks-per-node "$node" \
      --set cache.source=files --set "sample.kind=$kind" --set "cache.placement=$placement" \
      --set "sample.seeds=$seeds" --set "cache.peer_cost=$cost" --set "sample.fanouts=$fanouts" \
      --set "model.layers=$(tr , '\n' <<<"$fanouts" | wc -l)" --set "sample.batch=$batch" \
      --set "sample.layer_vertices=$vertices" --epochs "$epochs" \
      --policies "none,$policy" --alphas "$(alphas "$ranks" "$sizes")" --out "$to" >"$to.log" 2>&1 ||
      { echo "placement.sh: simulate failed; see $to.log" >&2; exit 1; }
    awk -F, -v way="$way" -v ranks="$ranks" -v epochs="$epochs" 'NR == 1 {
        for (i = 1; i <= NF; i++) at[$i] = i; next }
      $1 == "none" { all = $at["rows"]; next }
      { printf "%s %g %d %d %d %d %d %.1f\n", way, $2 / ranks, epochs, all,
        all - $at["rows"] - $at["peer_rows"], $at["peer_rows"], $at["rows"],
        $at["cost_per_epoch"] }' \
      "$to/simulate.csv" >>"$rows"
    [ -n "$trained" ] || continue
    placed "$to-run" "$out/$dir" "$trained"
    seconds "$way" "$to-run" >>"$times"
  done
  printf '\n%s ranks, groups of %s; a row of a peer costs %s of a far one\n\n' \
    "$ranks" "$node" "$cost"
  printf '| rows of a rank | seeds | placement | own | peers | far '
  printf '| cost, far rows/epoch | ratio |\n'
  printf '|--:|---|---|--:|--:|--:|--:|--:|\n'
  sort -s -g -k2,2 "$rows" | awk '
    { split($1, of, ":"); seeds = of[2] == "global" ? "whole graph" : "own part" }
    !($2 in base) { base[$2] = $8 }
    { printf "| %g N | %s | %s | %.1f %% | %.1f %% | %.1f %% | %.0f | %s |\n", $2, seeds, of[1],
        100 * $5 / $4, 100 * $6 / $4, 100 * $7 / $4, $8,
        (base[$2] ? sprintf("%.2f", $8 / base[$2]) : "") }'
  [ -n "$trained" ] || continue
  printf '\nthe same, trained with %s N rows a rank; loading is the cost at %s bytes/s a rank\n\n' \
    "$trained" "$link"
  printf '| seeds | placement | sampling s | loading s | computing s | loading | ranking s '
  printf '| check |\n'
  printf '|---|---|--:|--:|--:|--:|--:|---|\n'
  awk -v ranks="$ranks" -v link="$link" -v size="$trained" 'NR == FNR {
      if ($2 == size) { cost[$1] = $8; far[$1] = int($7 / $3) }; next }
    { load = cost[$1] / ranks * $8 / $9 / link; compute = $4 + $5 + $6; split($1, of, ":")
      printf "| %s | %s | %.2f | %.2f | %.2f | %.0f %% | %.2f | %s |\n",
        of[2] == "global" ? "whole graph" : "own part", of[1], $3, load, compute,
        100 * load / ($3 + load + compute), $7,
        (of[1] == "near" ? "trained" : far[$1] == $2 ? "as counted" : "NOT AS COUNTED") }' \
    "$rows" "$times"
  if [ -z "${RATE:-}" ] || [ "$ranks" -le "$node" ]; then continue; fi
  hosts="profiling/lab/hosts.sh -n $((ranks / node)) -p $node -r $RATE --"
  printf '\nfar rows from their owners, each group a host with a link of %s, two turns\n\n' "$RATE"
  printf '| seeds | placement | far rows/epoch | MB received | s/epoch | loading s | computing s |\n'
  printf '|---|---|--:|--:|--:|--:|--:|\n'
  for turn in 1 2; do
    for line in $ways; do
      IFS=: read -r way seeds dir <<<"$line"
      more=()
      case $way in
        alone) placement=own ;;
        ours) placement=group ;;
        near) placement=group more=(sample.locality="$locality" sample.locality_vertices="$near") ;;
        *) placement=own dir=$way more=(cache.policy=none) ;;
      esac
      to=$out/$way-$seeds-$ranks-$node-$RATE-$turn
      placed "$to" "$out/$dir" "$trained" cache.source=owners "${more[@]}"
      echo "$seeds $way $(number "$to" remote_rows) $(number "$to" remote_bytes)" \
        "$(number "$to" epoch_seconds) $(number "$to" exchange) $(number "$to" gather)" \
        "$(number "$to" forward) $(number "$to" backward) $(number "$to" update)" |
        awk '{ printf "| %s | %s | %d | %.1f | %.2f | %.2f | %.2f |\n",
          $1 == "global" ? "whole graph" : "own part", $2, $3, $4 / 1e6, $5, $6 + $7, $8 + $9 + $10 }'
    done
  done
  hosts=
done
