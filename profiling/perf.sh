#!/usr/bin/env bash
# perf.sh DIR COMMAND...: runs the command, which is one rank, under `perf record`, which shows Go,
# C kernels, BLAS and MPI in one profile:
#
#   mpirun -np 4 profiling/perf.sh run/perf bin/halognn train --config inputs/demo.yaml
#   perf report -i run/perf/rank-0000.data
#
# If perf is missing, or the system forbids it, the command runs without, and a line says why.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/usage.sh" 2 "$@"
dir=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}
plain() { echo "perf.sh: rank $rank runs without perf: $1" >&2; exec "${command[@]}"; }
command=("$@")
command -v perf >/dev/null 2>&1 || plain "it is not installed"
mkdir -p "$dir"
file=$dir/rank-$(printf '%04d' "$rank").data
paranoid=$(cat /proc/sys/kernel/perf_event_paranoid 2>/dev/null || echo unknown)
why=$(perf record -o /dev/null -F 99 -g true 2>&1 >/dev/null) ||
  plain "perf record fails (kernel.perf_event_paranoid is $paranoid): ${why%%$'\n'*}"
exec perf record --quiet -o "$file" -F 199 --call-graph fp -- "${command[@]}"
