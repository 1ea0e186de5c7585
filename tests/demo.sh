#!/usr/bin/env bash
# demo.sh DIR: what `make run` shows: it generates a graph, partitions it 4 ways, trains a model on
# 4 ranks, and writes a report with plots. Needs bin/halognn.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
dir=${1:?usage: demo.sh DIR}
step() { printf '\n$ %s\n' "$*"; "$@"; }
progress=lines; [ -t 1 ] && progress=bar
if [ ! -f "$dir/data/meta.json" ]; then
  step bin/halognn generate --kind sbm --preset arxiv --scale 0.3 --seed 1 --out "$dir/data"
fi
if [ ! -f "$dir/parts/meta.json" ]; then
  step bin/halognn partition --data "$dir/data" --parts 4 --method metis --seed 1 --out "$dir/parts"
fi
if [ -e "$dir/sage/config.yaml" ]; then step rm -r "$dir/sage"; fi # a run directory holds one run
step "$HALOGNN_MPIRUN" -np 4 bin/halognn train --config inputs/demo.yaml \
  --set data.parts="$dir/parts" --set run.dir="$dir/sage" --set run.progress=$progress
step bin/halognn report "$dir/sage" --out "$dir/report"
