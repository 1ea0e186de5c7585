#!/usr/bin/env bash
# bench.sh [COUNT]: the benchmarks of docs/results/performance.md. With every figure it measures the
# machine's own limit; compare ratios, not times. Raw results go to build/bench.txt, for `benchstat
# old.txt new.txt`. BENCH_VERTICES=240000 makes the sampler's graph smaller than the goal's 2.4
# million vertices and 120 million edges.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 0 "$@"
cd "$(dirname "$0")/../.."
HALOGNN_QUIET=1 source ./env.sh
count=${1:-6}
mkdir -p build
{
  go test -run '^$' -bench 'Sample/sampler=fused/map=dense/workers=1$' -benchtime 20x \
    -count "$count" ./src/topology/sample \
    -bench.vertices "${BENCH_VERTICES:-2400000}"
  go test -run '^$' -bench 'GEMM|Threads|Gather|SegmentMean|Attention' -benchtime 0.3s -count "$count" \
    ./src/devices/compute/cpu
  go test -run '^$' -bench . -benchtime 20x -count "$count" ./src/rows/exchange
  go test -run '^$' -bench 'VIP/analysis=.*/train=0.02$' -benchtime 3x -count "$count" \
    ./src/rows/access -bench.vertices "${BENCH_VERTICES:-2400000}"
  go test -run '^$' -bench 'Lookup|Step' -benchtime 60x -count "$count" ./src/rows/cache
} | tee build/bench.txt
go tool benchstat build/bench.txt
