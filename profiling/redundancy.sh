#!/usr/bin/env bash
# redundancy.sh DATA[:BATCH[:FANOUTS]]...: what data parallelism computes and loads more than once,
# GSplit's Table 1, on the given datasets. Cuts each into parts by what sampling draws and counts an
# epoch by `halognn simulate modes`: minibatches of each rank (micro) against one of all ranks
# (mini), with seeds drawn from the whole graph, as the paper has it, and from a rank's own part.
#
#   profiling/redundancy.sh data/products:1024:15,10,5 data/fb100:1024
#
#   RANKS   of the comparison        [4]
#   OUT     where parts go           [run/redundancy]
#
# BATCH are the seeds of all ranks together [1024], FANOUTS are 15,10,5 unless given.
set -euo pipefail
cd "$(dirname "$0")/.."
source profiling/runs.sh
need_dataset "${@%%:*}"
out=${OUT:-run/redundancy}
mkdir -p "$out"

printf '| graph | seeds | edges, micro | mini | ratio | features, micro | mini | ratio | '
printf 'rows computed, ratio |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n'
for arg in "$@"; do
  IFS=: read -r data batch fanouts <<<"$arg"
  batch=${batch:-1024} fanouts=${fanouts:-15,10,5} name=$(basename "$data")
  "$program" partition --data "$data" --parts "$ranks" --weights presample --batch "$batch" \
    --fanouts "$fanouts" --seed 1 --force --out "$out/$name-$ranks" >"$out/$name.log"
  for seeds in global local; do
    rm -rf "${out:?}/$name-$seeds"
    "$program" simulate modes --parts "$out/$name-$ranks" --ranks "$ranks" \
      --set "sample.batch=$batch" --set sample.batch_scope=global --set "sample.fanouts=$fanouts" \
      --set "model.layers=$(tr , '\n' <<<"$fanouts" | wc -l)" --set sample.seeds=$seeds --out "$out/$name-$seeds" \
      >"$out/$name-$seeds.log"
    awk -F, -v name="$name" -v seeds=$seeds '
      NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
      { e[$2] = $at["edges"]; l[$2] = $at["loaded_rows"]; c[$2] = $at["computed_rows"] }
      END {
        printf "| %s | %s | %.2f M | %.2f M | %.2f | %.2f M | %.2f M | %.2f | %.2f |\n", name, seeds,
          e["data"] / 1e6, e["split"] / 1e6, e["data"] / e["split"],
          l["data"] / 1e6, l["split"] / 1e6, l["data"] / l["split"], c["data"] / c["split"]
      }' "$out/$name-$seeds/modes.csv"
  done
done
