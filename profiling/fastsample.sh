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
case ${1:--h} in
  -h | --help)
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "profiling/$(basename "$0")"
    exit $(($# == 0 ? 2 : 0)) ;;
esac
parts=$1 out=${2:-run/fastsample}
[ -f "$parts/meta.json" ] ||
  { echo "fastsample.sh: $parts holds no parts; halognn partition makes them" >&2; exit 2; }
HALOGNN_QUIET=1 source ./env.sh
fanouts=${FANOUTS:-15,10,5 10,10,10 5,5,5 20,15,10}
batches=${BATCHES:-1024 2048 4096 6144 8192 10240} train=${TRAIN-1024 4096 10240}
repeat=${REPEAT:-2} program=${HALOGNN:-bin/halognn} sets=()
for kv in ${SETS:-}; do sets+=(--set "$kv"); done
mkdir -p "$out"

echo 'Sampling alone, one thread:'
echo
go run ./profiling/fastsample -pairs "${PAIRS:-8}" -batches "${batches// /,}" \
  -fanouts "$fanouts" "$parts" | tee "$out/sampling.md"
[ -n "$train" ] || exit 0

number() { # of a run's summary
  sed -n "s/^ *\"$2\": \"\{0,1\}\([0-9a-z.+-]*\)\"\{0,1\},*$/\1/p" "$1/summary.json"
}

least() { sort -g | head -1; }

echo
echo 'Sampling and training:'
echo
{
  printf '| fanouts | batch | coo, s/epoch | fused, s/epoch | coo / fused | '
  printf 'sampling coo, s | fused, s |\n|---|--:|--:|--:|--:|--:|--:|\n'
  for fan in $fanouts; do
    for batch in $train; do
      runs=$out/$fan-$batch
      rm -rf "$runs" # of an earlier call
      mkdir -p "$runs"
      # The samplers take turns, so that a busy minute of the machine does not fall on one of them.
      for ((k = 0; k < repeat; k++)); do
        for kernel in coo fused; do
          # shellcheck disable=SC2086  # LAUNCH is a command with arguments
          ${LAUNCH:-} "$program" train --config inputs/products.yaml --set data.parts="$parts" \
            --set run.dir="$runs/$kernel-$k" --set sample.fanouts="$fan" \
            --set sample.batch="$batch" --set sample.kernel="$kernel" --set train.epochs=2 \
            --set train.eval_every=0 "${sets[@]}" >"$runs/$kernel-$k.log" 2>&1 </dev/null ||
            { echo "fastsample.sh: see $runs/$kernel-$k.log" >&2
              tail -5 "$runs/$kernel-$k.log" >&2
              exit 1; }
        done
      done
      fastest() { for d in "$runs/$1"-?; do number "$d" "$2"; done | least; }
      awk -v f="$fan" -v b="$batch" -v tc="$(fastest coo epoch_seconds)" \
        -v tf="$(fastest fused epoch_seconds)" -v sc="$(fastest coo sample)" \
        -v sf="$(fastest fused sample)" 'BEGIN {
          printf "| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", f, b, tc, tf, tc / tf, sc, sf }'
      digests=$(for d in "$runs"/*-?; do number "$d" loss_digest; done | sort -u)
      [ "$(wc -l <<<"$digests")" = 1 ] ||
        { echo "check FAILED: loss digests differ:" "$digests"; exit 1; }
    done
  done
} | tee "$out/training.md"
echo
echo 'check: both samplers gave every minibatch and every loss alike'
