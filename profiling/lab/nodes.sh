#!/usr/bin/env bash
# nodes.sh PARTS [OUT]: counts the rows that cross between nodes with exchange.nodes off and on, in
# runs of ranks in one process on pretended nodes, and checks that their digests are equal. Prints a
# table with, for each cache, the rows of a step over all ranks with off and on, their ratio, the
# ratio of the rows with off and static caches of each rank's own to the rows with on, and the bytes
# that ranks of a node send each other.
#
#   halognn generate --kind sbm --preset products --scale 0.1 --seed 5 --out data
#   halognn partition --data data --parts 8 --method metis --seed 1 --out parts
#   GOALS="1.45 1.25 1.25 1.5" profiling/lab/nodes.sh parts
#
#   OUT      where results go; is removed first                                    [run/nodes]
#   RANKS    ranks        [8]     NODE  ranks of a node      [4]
#   FANOUTS  [15,10,5]    BATCH   [1024]    EPOCHS [2]       ALPHA of the caches [0.1]
#   GOALS    the least ratio without a cache, with static caches of each rank's own, with look-ahead
#            caches of each rank's own, of these static caches to the divided one with on, and of
#            rows 4 to 6                                                            [none]
#   CACHES   which rows of the table: 0 no cache, 1 static, 2 look-ahead, 3 divided static; each
#            rank's with off and divided with on: 4 look-ahead, 5 sieve, 6 prefetch  [0 1 2 3 4]
#   SETS     further settings, as "topology.kind=partitioned"                      [none]
#   RATES    what each host may send, as "1gbit 200mbit": times runs instead, each way in turn, whose
#            nodes are network hosts of a core each (profiling/lab/hosts.sh). Later epochs are told
#            apart: in the first, memory is touched for the first time                 [none]
#   WAYS     values of exchange.nodes that are timed; off must be first             [off on]
#   ROUNDS   runs of each, whose epoch times are averaged                          [2]
set -euo pipefail
cd "$(dirname "$0")/../.."
source profiling/runs.sh
parts=$1 out=${2:-run/nodes} ranks=${RANKS:-8}
need_parts "$parts"
read -ra goals <<<"${GOALS:-}"
read -ra sets <<<"${SETS:-}"
fanouts=${FANOUTS:-15,10,5} ways=${WAYS:-off on} rounds=${ROUNDS:-2}
rm -rf "$out"
mkdir -p "$out"

on_hosts=() in_process=(--ranks-in-process "$ranks")
# run NAME KEY=VALUE...: trains into $out/NAME.
run() {
  local dir=$out/$1 flags=() kv
  shift
  for kv in model.layers="$(tr , '\n' <<<"$fanouts" | wc -l)" model.hidden=4 sample.fanouts="$fanouts" \
    sample.batch="${BATCH:-1024}" train.epochs="${EPOCHS:-2}" train.eval_every=0 compute.threads=1 \
    pipeline.workers=1 run.ranks_per_node="${NODE:-4}" cache.alpha="${ALPHA:-0.1}" "$@" "${sets[@]}"; do
    flags+=(--set "$kv")
  done
  "${on_hosts[@]}" "$program" train --quiet --config inputs/demo.yaml --set data.parts="$parts" \
    --set run.dir="$dir" "${in_process[@]}" "${flags[@]}" >"$dir.log" 2>&1 </dev/null || {
    tail -5 "$dir.log" >&2
    exit 1
  }
}

caches=("cache.policy=none" "cache.policy=vip" "cache.policy=lookahead"
  "cache.policy=vip cache.placement=group cache.peer_cost=0" "cache.policy=lookahead"
  "cache.policy=sieve" "cache.policy=prefetch")
names=("no cache" "each rank's, static" "each rank's, look-ahead" "divided among the ranks, static"
  "divided with on, look-ahead" "divided with on, sieve" "divided with on, prefetch")
indices=${CACHES:-0 1 2 3 4}
# settings I NODES: puts the settings of row I into cache.
settings() {
  read -ra cache <<<"${caches[$1]} exchange.nodes=$2"
  [ "$2" = off ] || (($1 < 4)) || cache+=(cache.placement=group)
}

# epochs DIR: seconds of an epoch in the mean, and in that of all but the first.
epochs() {
  sed -n '/"kind":"epoch"/s/.*"seconds":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" |
    awk '{ s += $1 } NR > 1 { later += $1 } END { print s / NR, NR > 1 ? later / (NR - 1) : "nan" }'
}

timed() {
  local rate i round nodes dir
  echo '| a host sends | cache | nodes | s an epoch | off / it | later epochs | off / it | MB | chosen |'
  echo '|---|---|---|--:|--:|--:|--:|--:|---|'
  in_process=()
  for rate in $RATES; do
    on_hosts=(profiling/lab/hosts.sh -n $((ranks / ${NODE:-4})) -p "${NODE:-4}" -r "$rate" -c 1 --)
    for i in $indices; do
      for ((round = 1; round <= rounds; round++)); do
        for nodes in $ways; do
          settings "$i" "$nodes"
          run "$i-$rate-$nodes-$round" "${cache[@]}"
        done
      done
      for nodes in $ways; do
        for ((round = 1; round <= rounds; round++)); do
          dir=$out/$i-$rate-$nodes-$round
          echo "$nodes $(epochs "$dir") $(number "$dir" remote_bytes) $(number "$dir" nodes)"
        done
      done | awk -v rate="$rate" -v name="${names[$i]}" -v n="$rounds" -v k=$((ranks / ${NODE:-4})) '
        !($1 in s) { way[++ways] = $1 }
        { s[$1] += $2 / n; later[$1] += $3 / n; mb[$1] = $4 / k / 1e6; chosen[$1] = chosen[$1] " " $5 }
        END { for (w = 1; w <= ways; w++) {
          nodes = way[w]
          printf "| %s | %s | %s | %.3f | %.2f | %.3f | %.2f | %.1f |%s |\n", rate, name, nodes,
            s[nodes], s["off"] / s[nodes], later[nodes], later["off"] / later[nodes], mb[nodes],
            chosen[nodes] } }'
    done
  done
  same_digest "$out"/[0-6]-*-*-*[0-9]
}
if [ -n "${RATES:-}" ]; then
  timed
  exit
fi

for i in $indices; do
  for nodes in off on; do
    settings "$i" $nodes
    run "$i-$nodes" "${cache[@]}"
  done
done

echo '| cache | rows off | rows on | off / on | own off / on | MB in nodes |'
echo '|---|--:|--:|--:|--:|--:|'
own=0
[ ! -d "$out/1-off" ] || own=$(number "$out/1-off" remote_rows)
missed=0
for i in $indices; do
  off=$(number "$out/$i-off" remote_rows) on=$(number "$out/$i-on" remote_rows)
  awk -v name="${names[$i]}" -v off="$off" -v on="$on" -v own="$own" -v i="$i" -v goal="${goals[$i]:-0}" \
    -v bytes="$(number "$out/$i-on" node_bytes)" -v steps="$(number "$out/$i-on" steps_per_epoch)" 'BEGIN {
      ratio = off / on; far = own / on
      printf "| %s | %.0f | %.0f | %.2f | %.2f | %.1f |\n", name, off / steps, on / steps, ratio, far,
        bytes / steps / 1e6
      exit (i == 3 ? far : ratio) < goal }' || missed=1
done
same_digest "$out"/[0-6]-o*[fn] || missed=1
exit $missed
