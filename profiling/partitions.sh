#!/usr/bin/env bash
# partitions.sh DATA[:BATCH[:FANOUTS]]...: which parts suit minibatches that all ranks share,
# GSplit's Figure 5, on the given datasets. Cuts each by `halognn partition --weights` presample,
# node, edge and rand, and prints how many sampled edges lie between parts, and how evenly parts
# share the edges of a layer, over an epoch that was not counted.
#
#   profiling/partitions.sh data/products:1024:15,10,5 data/twitch:1024
#
#   PARTS   how many                                   [4]
#   EPOCHS  that presample and node count              [10]
#   WITHIN  --imbalance of presample and node          [1.05]
#   OUT     where parts and counts go                  [run/partitions]
#
# BATCH are the seeds of all ranks together [1024], FANOUTS are 15,10,5 unless given. The last column
# is the time of the command, with what it counts: node reads what presample has counted.
set -euo pipefail
cd "$(dirname "$0")/.."
source profiling/runs.sh
need_dataset "${@%%:*}"
parts=${PARTS:-4} epochs=${EPOCHS:-10} out=${OUT:-run/partitions}
mkdir -p "$out"

printf '| graph | weights | edges between parts | largest/mean, by layer from the input | worst '
printf '| s |\n|---|---|--:|---|---|--:|\n'
for arg in "$@"; do
  IFS=: read -r data batch fanouts <<<"$arg"
  batch=${batch:-1024} fanouts=${fanouts:-15,10,5} name=$(basename "$data")
  rm -rf "${out:?}/$name-counts"
  for weights in presample node edge rand; do
    counted=()
    case $weights in presample | node)
      counted=(--epochs "$epochs" --counts "$out/$name-counts" --imbalance "${WITHIN:-1.05}") ;;
    esac
    begin=$(date +%s.%N)
    "$program" partition --data "$data" --parts "$parts" --weights $weights "${counted[@]}" \
      --batch "$batch" --fanouts "$fanouts" --seed 1 --force --allow-imbalance \
      --out "$out/$name-$weights" >"$out/$name-$weights.log"
    took=$(awk -v b="$begin" -v e="$(date +%s.%N)" 'BEGIN { printf "%.1f", e - b }')
    sed -n 's/^[0-9]* minibatches of [0-9]* seeds: \([0-9.]*\)% .* by layer: \(.*\)$/\1;\2/p' \
      "$out/$name-$weights.log" | awk -F';' -v n="$name" -v w=$weights -v took="$took" '{
        layers = worst = ""
        count = split($2, of, ", ")
        for (i = 1; i <= count; i++) {
          split(of[i], x, /[ ()]+/)
          layers = layers (i > 1 ? ", " : "") x[2]
          worst = worst (i > 1 ? ", " : "") x[4]
        }
        printf "| %s | %s | %.1f %% | %s | %s | %s |\n", n, w, $1, layers, worst, took }'
  done
done
