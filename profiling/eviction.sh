#!/usr/bin/env bash
# Rows that MassiveGNN's buffer fetches over a long run, by decay and interval: counted, not trained.
#
#   profiling/eviction.sh NAME=PARTS:BATCH ...   into run/eviction/NAME (OUT=...)
#
# 12 pairs of gamma and delta from the paper's grid, the other reading of its threshold
# (cache.leave=unused) and no eviction, at three fractions of a part's 1-hop halo; 2 layers, 25
# neighbours of a seed and 10 of each of these; STEPS (7000) minibatches of a rank.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-run/eviction} steps=${STEPS:-7000} program=${HALOGNN:-bin/halognn}
policies=none,prefetch:evict=false
for delta in 16 64 256 1024; do
  for gamma in 0.5 0.95 0.9995; do
    policies+=,prefetch:gamma=$gamma:delta=$delta
  done
  policies+=,prefetch:leave=unused:delta=$delta
done
for one; do
  name=${one%%=*} parts=${one#*=}
  batch=${parts##*:} parts=${parts%:*}
  set -- --parts "$parts" --halo-fractions 0.15,0.25,0.5 \
    --set model.layers=2 --set sample.fanouts=25,10 --set "sample.batch=$batch" --set cache.halo_hops=1
  each=$("$program" simulate "$@" --policies none --epochs 1 --out "$out/$name-1" |
    sed -n 's/.*ranks, \([0-9]*\) steps an epoch.*/\1/p')
  rm -rf "$out/$name-1"
  "$program" simulate "$@" --policies "$policies" --epochs $(((steps + each - 1) / each)) \
    --out "$out/$name" >"$out/$name.txt"
  cat "$out/$name.txt"
done
