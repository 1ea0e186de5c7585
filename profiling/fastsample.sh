#!/usr/bin/env bash
# fastsample.sh PARTS [OUT]: FastSample's Figure 5, for sample.kernel coo and fused. Compares the
# two samplers alone, on one thread, and then training with either, and prints both tables.
#
#   halognn generate --kind sbm --preset products --scale 0.1 --out data
#   halognn partition --data data --parts 1 --method contiguous --out parts
#   profiling/fastsample.sh parts
#
#   FANOUTS  lists of fanouts            [15,10,5 10,10,10 5,5,5 20,15,10]
#   BATCHES  batch sizes, sampling       [1024 2048 4096 6144 8192 10240]
#   TRAIN    batch sizes, training; an empty list measures the samplers alone   [1024 4096 10240]
#   PAIRS    minibatches of each kind    [8]
#   REPEAT   runs of each, in turn; the fastest counts                         [2]
#   LAUNCH   how to start training       [one process, without a launcher]
#   SETS     further settings, as "model.hidden=64"                             [none]
#
# Training is that of inputs/products.yaml. All runs of the same batch and fanouts must have one
# loss_digest: that is the check.
set -euo pipefail
cd "$(dirname "$0")/.."
CONFIG=inputs/products.yaml
source profiling/runs.sh
parts=$1 out=${2:-run/fastsample}
need_parts "$parts"
fanouts=${FANOUTS:-15,10,5 10,10,10 5,5,5 20,15,10}
batches=${BATCHES:-1024 2048 4096 6144 8192 10240} trained=${TRAIN-1024 4096 10240}
repeat=${REPEAT:-2} launch=${LAUNCH:-}
read -ra sets <<<"${SETS:-}"
mkdir -p "$out"

echo 'Sampling alone, one thread:'
echo
go run ./profiling/fastsample -pairs "${PAIRS:-8}" -batches "${batches// /,}" \
  -fanouts "$fanouts" "$parts" | tee "$out/sampling.md"
[ -n "$trained" ] || exit 0

echo
echo 'Sampling and training:'
echo
{
  printf '| fanouts | batch | coo, s/epoch | fused, s/epoch | coo / fused | '
  printf 'sampling coo, s | fused, s |\n|---|--:|--:|--:|--:|--:|--:|\n'
  for fan in $fanouts; do
    for batch in $trained; do
      runs=$out/$fan-$batch
      rm -rf "$runs" # of an earlier call
      mkdir -p "$runs"
      # The samplers take turns, so that a busy minute of the machine does not fall on one of them.
      for ((k = 0; k < repeat; k++)); do
        for kernel in coo fused; do
          train as-is "$parts" "$runs/$kernel-$k" sample.fanouts="$fan" sample.batch="$batch" \
            sample.kernel="$kernel" train.epochs=2 train.eval_every=0 "${sets[@]}"
        done
      done
      coo=$(fastest "$runs"/coo-?) fused=$(fastest "$runs"/fused-?)
      awk -v f="$fan" -v b="$batch" -v tc="$(number "$coo" epoch_seconds)" \
        -v tf="$(number "$fused" epoch_seconds)" -v sc="$(number "$coo" sample)" \
        -v sf="$(number "$fused" sample)" 'BEGIN {
          printf "| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", f, b, tc, tf, tc / tf, sc, sf }'
      same_digest "$runs"/*-? >&2
    done
  done
} | tee "$out/training.md"
echo
echo 'check: both samplers gave every minibatch and every loss alike'
