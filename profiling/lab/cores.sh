#!/usr/bin/env bash
# cores.sh PARTS [OUT]: how busy are the cores of a rank, and are settings of compute.threads and
# pipeline.workers by hand faster than the defaults? Trains each of CASES, numbers of ranks and
# CPUs; the settings take turns. PARTS has as many parts as the most ranks.
#
#   halognn partition --data data --parts 4 --out parts
#   profiling/lab/cores.sh parts
#
#   CASES    RANKS:CPUS of this machine    [1:2 1:1 2:2 4:2]
#   BYHAND   THREADS+WORKERS of a rank     [1+1 2+1 2+2]
#   REPEAT   runs of each; the fastest counts      [2]
#   CONFIG   what is trained                       [inputs/products.yaml]
#   SETS     further settings, as "model.hidden=64"    [none]
#
# All runs of a case must have one loss_digest: that is the check.
set -euo pipefail
cd "$(dirname "$0")/../.."
CONFIG=${CONFIG:-inputs/products.yaml}
source profiling/runs.sh
parts=$1 out=${2:-run/cores}
need_parts "$parts"
by_hand=${BYHAND:-1+1 2+1 2+2} repeat=${REPEAT:-2}
read -ra sets <<<"${SETS:-}"
rm -rf "$out"
mkdir -p "$out"

printf '| ranks | CPUs | s an epoch | busy | threads + workers by hand, fastest | s an epoch '
printf '| as it comes / by hand |\n|--:|--:|--:|--:|---|--:|--:|\n'
for case in ${CASES:-1:2 1:1 2:2 4:2}; do
  n=${case%:*} cpus=${case#*:} runs=$out/${case/:/-}
  mkdir -p "$runs"
  launch="taskset -c 0-$((cpus - 1)) $HALOGNN_MPIRUN -bind-to none -np $n"
  for ((k = 0; k < repeat; k++)); do
    for way in auto $by_hand; do
      more=()
      [ "$way" = auto ] || more=(compute.threads="${way%+*}" pipeline.workers="${way#*+}")
      train as-is "$parts" "$runs/$way-$k" train.epochs=3 train.eval_every=0 "${sets[@]}" "${more[@]}"
    done
  done
  auto=$(fastest "$runs"/auto-?) hand=$(fastest "$runs"/[0-9]*-?)
  way=${hand##*/}
  awk -v n="$n" -v c="$cpus" -v a="$(number "$auto" epoch_seconds)" -v way="${way%-*}" \
    -v b="$(number "$auto" busy_fraction)" -v h="$(number "$hand" epoch_seconds)" 'BEGIN {
      printf "| %d | %d | %.2f | %.3f | %s | %.2f | %.3f |\n", n, c, a, b, way, h, a / h }'
  same_digest "$runs"/*-? >&2
done
