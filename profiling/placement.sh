#!/usr/bin/env bash
# placement.sh DATASET [OUT]: what ranks that read each other's caches read where, and what that costs
# (data placement, ICS 2022): Figures 4 to 6, 10 and 11, and Table 2. Every rank caches so many rows;
# those of its group are read in shared memory, all others from the files (cache.source=files):
#
#   METHOD  each rank holds the hottest rows of its own part, and draws seeds there (cache.placement=parts)
#   alone   each rank holds the hottest rows of all, for itself (own; seeds from the whole graph)
#   ours    the group divides the hottest rows by the cost of a peer's row (group; the same seeds)
#
# Rows are counted by simulate. Of one size each is trained as well: for the seconds of sampling and
# computing, and to check that training reads the rows that were counted.
#
#   METHODS  partitions to compare with                    [contiguous metis]
#   PARTS    of each: the ranks of the largest group       [4]
#   GROUPS_  ranks/ranks of a group, one table each        [2/2 4/2 4/4]
#   SIZES    rows of a rank's cache over all vertices      [0.1 0.2 0.25]
#   COSTS    of a peer's row, one for each of GROUPS_      [0 0.2 0], as in the paper
#   LINK     bytes/s at which a rank would get far rows    [125e6]
#   TRAINED  the size that is trained; empty: none         [0.2]
#   FANOUTS, BATCH, EPOCHS, SETS (further settings)        [5,5,5 64 2 -]
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:--h} in
  -h | --help)
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "profiling/$(basename "$0")"
    exit $(($# == 0 ? 2 : 0)) ;;
esac
data=$1 out=${2:-run/placement}
[ -f "$data/meta.json" ] ||
  { echo "placement.sh: $data holds no dataset; halognn generate or import makes one" >&2; exit 2; }
HALOGNN_QUIET=1 source ./env.sh
program=${HALOGNN:-bin/halognn} methods=${METHODS:-contiguous metis} parts=${PARTS:-4}
sizes=${SIZES:-0.1 0.2 0.25} link=${LINK:-125e6} trained=${TRAINED-0.2}
fanouts=${FANOUTS:-5,5,5} batch=${BATCH:-64} epochs=${EPOCHS:-2}
read -ra costs <<<"${COSTS:-0 0.2 0}"
read -ra further <<<"${SETS:-}"
mkdir -p "$out"

number() { # of a run's summary
  sed -n "s/^ *\"$2\": \"\{0,1\}\([0-9a-z.+-]*\)\"\{0,1\},*$/\1/p" "$1/summary.json" | head -1
}
alphas() { awk -v k="$1" -v s="$2" 'BEGIN { n = split(s, x, " ")
  for (i = 1; i <= n; i++) printf "%s%.6g", (i > 1 ? "," : ""), x[i] * k }'; }

printf 'dividing the graph into %s parts\n\n| method | s |\n|---|--:|\n' "$parts"
for method in $methods; do
  begin=$(date +%s.%N)
  "$program" partition --quiet --data "$data" --parts "$parts" --method "$method" --seed 1 \
    --allow-imbalance --force --out "$out/$method" >"$out/$method.log" 2>&1
  printf '| %s | %.1f |\n' "$method" "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')"
done
first=${methods%% *}

group=0
for shape in ${GROUPS_:-2/2 4/2 4/4}; do
  ranks=${shape%/*} node=${shape#*/} cost=${costs[group]}
  group=$((group + 1))
  rows=$out/rows-$ranks-$node.txt times=$out/times-$ranks-$node.txt
  : >"$rows"
  : >"$times"
  for way in $methods alone ours; do
    case $way in
      alone) dir=$first placement=own seeds=global ;;
      ours) dir=$first placement=group seeds=global ;;
      *) dir=$way placement=parts seeds=local ;;
    esac
    to=$out/$way-$ranks-$node
    rm -rf "$to"
    "$program" simulate --quiet --parts "$out/$dir" --ranks "$ranks" --ranks-per-node "$node" \
      --source files --placement "$placement" --seeds "$seeds" --peer-cost "$cost" \
      --fanouts "$fanouts" --batch "$batch" --epochs "$epochs" --policies none,vip \
      --alphas "$(alphas "$ranks" "$sizes")" --out "$to" >"$to.log" 2>&1 ||
      { echo "placement.sh: simulate failed; see $to.log" >&2; exit 1; }
    awk -F, -v way="$way" -v ranks="$ranks" -v epochs="$epochs" 'NR == 1 {
        for (i = 1; i <= NF; i++) at[$i] = i; next }
      $1 == "none" { all = $at["rows"]; next }
      { print way, $2 / ranks, all / epochs, (all - $at["rows"] - $at["peer_rows"]) / all,
        $at["peer_rows"] / all, $at["rows"] / all, $at["cost_per_epoch"], $at["rows"] / epochs }' \
      "$to/simulate.csv" >>"$rows"
    [ -n "$trained" ] || continue
    rm -rf "$to-run"
    # shellcheck disable=SC2086  # HALOGNN_MPIRUN may have arguments
    $HALOGNN_MPIRUN -np "$ranks" "$program" train --config inputs/slow-network.yaml \
      --set data.parts="$out/$dir" --set run.dir="$to-run" --set run.ranks_per_node="$node" \
      --set sample.fanouts="$fanouts" --set sample.batch="$batch" --set sample.seeds="$seeds" \
      --set train.epochs="$epochs" --set cache.policy=vip --set cache.source=files \
      --set cache.alpha="$(alphas "$ranks" "$trained")" --set cache.placement="$placement" \
      --set cache.peer_cost="$cost" "${further[@]/#/--set=}" >"$to-run.log" 2>&1 </dev/null ||
      { echo "placement.sh: training failed; see $to-run.log" >&2; exit 1; }
    echo "$way" "$(number "$to-run" stored_rows)" "$(number "$to-run" sample)" \
      "$(number "$to-run" forward)" "$(number "$to-run" backward)" "$(number "$to-run" update)" \
      "$(number "$to-run" rank)" "$(number "$to-run" bytes)" \
      "$(number "$to-run" capacity_rows)" >>"$times"
  done
  printf '\n%s ranks, groups of %s; a row of a peer costs %s of a far one\n\n' \
    "$ranks" "$node" "$cost"
  printf '| rows of a rank | placement | own | peers | far | cost, far rows/epoch | of %s |\n' "$first"
  printf '|--:|---|--:|--:|--:|--:|--:|\n'
  sort -s -g -k2,2 "$rows" | awk -v first="$first" '
    $1 == first { base[$2] = $7 }
    { printf "| %g N | %s | %.1f %% | %.1f %% | %.1f %% | %.0f | %.2f |\n", $2, $1, 100 * $4,
      100 * $5, 100 * $6, $7, $7 / base[$2] }'
  [ -n "$trained" ] || continue
  printf '\nthe same, trained with %s N rows a rank; loading is the cost at %s bytes/s a rank\n\n' \
    "$trained" "$link"
  printf '| placement | sampling s | loading s | computing s | loading | ranking s | rows as counted |\n'
  printf '|---|--:|--:|--:|--:|--:|---|\n'
  awk -v ranks="$ranks" -v link="$link" -v size="$trained" 'NR == FNR {
      if ($2 == size) { cost[$1] = $7; far[$1] = $8 }; next }
    { load = cost[$1] / ranks * $8 / $9 / link; compute = $4 + $5 + $6
      printf "| %s | %.2f | %.2f | %.2f | %.0f %% | %.2f | %s |\n", $1, $3, load, compute,
        100 * load / ($3 + load + compute), $7, int(far[$1]) == $2 ? "yes" : "NO" }' \
    "$rows" "$times"
done
