#!/usr/bin/env bash
# ranks.sh [OUT]: hundreds of real ranks on this machine: start-up, time, memory of a rank by item,
# digests, log lines; a rank that dies; a run whose launcher gets hardly any processor time at the
# end (needs root); and a run that is resumed on other numbers of ranks.
#   OUT     results and tables; is removed first              [run/ranks]
#   RANKS   numbers of ranks; each divides the largest        ["64 128 256"]
#   MPIS    which programs: openmpi, mpich, or build/NAME/... ["openmpi mpich"]
#   SUMS    values of train.allreduce                         ["reproducible auto"]
#   DIES    ranks of the run in which one dies                [128]
#   ENDS    ranks of the run whose launcher is late, of Open MPI [16]
#   RESUMED ranks of the first start, then of the resumed ones ["128 64 256"]
#   SETS    further settings, as "model.hidden=256"           [none]
# Makes a graph of 40,000 vertices. Ranks share cores, so times only show that a job starts and
# ends. Needs build/MPI/halognn for each MPI (tests/mpi.sh makes them), and about 40 MB a rank.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/../usage.sh" 0 "$@"
cd "$(dirname "$0")/../.."
out=${1:-run/ranks} counts=${RANKS:-64 128 256} mpis=${MPIS:-openmpi mpich}
read -ra sets <<<"${SETS:-}"
most=$(tr " " "\n" <<<"$counts ${DIES-128} ${ENDS-16} ${RESUMED-128 64 256}" | sort -n | tail -1)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
rm -rf "$out"
mkdir -p "$out"
program() { echo "build/$1/halognn"; }
any=$(program "${mpis%% *}")
"$any" generate --vertices 40000 --degree 12 --features 100 --classes 16 --seed 1 \
  --out "$out/data" >"$out/data.log"
"$any" partition --data "$out/data" --parts "$most" --method ldg --allow-imbalance --seed 1 \
  --out "$out/parts" >"$out/parts.log"

# launch MPI RANKS COMMAND...: under that MPI
launch() {
  local mpi=$1 n=$2
  shift 2
  case $mpi in
    openmpi) set -- mpirun.openmpi --oversubscribe -np "$n" "$@" ;;
    *) set -- "mpirun.$mpi" -np "$n" "$@" ;;
  esac
  timeout 900 "$@"
}
# train MPI RANKS RUN [SETTING...]: two epochs of the parts, 8 ranks a pretended node
train() {
  local mpi=$1 n=$2 run=$3 flags=() kv
  shift 3
  for kv in model.layers=2 sample.fanouts=10,5 sample.batch=32 sample.streams=part \
    compute.threads=1 pipeline.workers=1 train.epochs=2 train.eval_every=0 \
    run.ranks_per_node=8 "${sets[@]}" "$@"; do
    flags+=(--set "$kv")
  done
  launch "$mpi" "$n" "$(program "$mpi")" train --config inputs/demo.yaml \
    --set data.parts="$out/parts" --set run.dir="$run" "${flags[@]}" >"$run.log" 2>&1 </dev/null
}
field() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$1/summary.json" | head -1; }
part() { sed -n "s/.*\"$2\": \([0-9.]*\).*/\1/p" "$1.pss"; }

runs() {
  local mpi n sum run pss code
  echo '| MPI | sums | ranks | s before the first step | s of launching in it | s an epoch |' \
    'MB a rank (PSS) | largest | of MPI | program | files | arrays | log lines | exit code |' \
    'loss digest |'
  echo '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|'
  for mpi in $mpis; do
    for sum in ${SUMS:-reproducible auto}; do
      for n in $counts; do
        run=$out/$mpi-$sum-$n
        python3 profiling/lab/pss.py "$run" "$n" >"$run.pss" &
        pss=$!
        code=0
        train "$mpi" "$n" "$run" train.allreduce="$sum" || code=$?
        wait "$pss"
        printf '| %s | %s | %d | %.1f | %.1f | %.1f |' "$mpi" "$sum" \
          "$n" "$(field "$run" setup_seconds)" "$(field "$run" launch)" \
          "$(field "$run" epoch_seconds)"
        printf ' %s | %s | %s | %s | %s | %s | %d | %d | %s |\n' \
          "$(part "$run" pss)" "$(part "$run" largest)" \
          "$(part "$run" mpi)" "$(part "$run" program)" "$(part "$run" files)" \
          "$(part "$run" arrays)" "$(wc -l <"$run.log")" "$code" \
          "$(field "$run" loss_digest)"
      done
    done
  done
}

# A rank dies in the second epoch; then the launcher and all ranks must end.
dies() {
  local mpi n=${DIES-128} run pid began
  [ -n "$n" ] || return 0
  printf '\n| MPI | ranks | s from the death of one to the end of all | lines on the terminal |\n'
  echo '|---|--:|--:|--:|'
  for mpi in $mpis; do
    run=$out/$mpi-dies
    train "$mpi" "$n" "$run" train.epochs=1000 &
    until grep -Eq 'epoch ([2-9]|[1-9][0-9])' "$run.log" 2>/dev/null; do sleep 1; done
    for pid in $(pgrep -f "halognn train .*run.dir=$run( |$)"); do
      [ "$(cat "/proc/$pid/comm")" != halognn ] || break # the launcher matches too
    done
    began=$(date +%s.%N)
    kill -9 "$pid"
    wait $! || true
    while pgrep -f "halognn train .*run.dir=$run( |$)" >/dev/null; do sleep 0.2; done
    awk -v m="$mpi" -v n="$n" -v a="$began" -v b="$(date +%s.%N)" -v l="$(wc -l <"$run.log")" \
      'BEGIN { printf "| %s | %d | %.1f | %d |\n", m, n, b - a, l }'
  done
}

# Once the results are written the launcher gets a millisecond of a processor in each second, as
# where hundreds of ranks share few cores. It must still see that all ranks ended in order.
ends() {
  local mpi n=${ENDS-16} failed=0
  [ -n "$n" ] || return 0
  [ "$(id -u)" = 0 ] || {
    echo "ranks.sh: a late launcher needs root; left out" >&2
    return 0
  }
  printf '\n| MPI | ranks | exit code with a late launcher | times it waited |\n|---|--:|--:|--:|\n'
  for mpi in $mpis; do
    # others' launchers have too little to do to be late
    if [ "$mpi" = openmpi ]; then (late "$mpi" "$n") || failed=1; fi
  done
  return $failed
}
# late MPI RANKS: one such run, in a shell of its own
late() {
  local mpi=$1 n=$2 run=$out/$1-ends groups=/sys/fs/cgroup moved=0 waited code=0 pid
  [ -f $groups/cgroup.controllers ] || groups=$groups/cpu # version 1
  group=$groups/halognn-$$ above=$groups/cgroup.procs job=
  mkdir "$group" || return 1
  trap restore EXIT
  trap 'exit 1' INT TERM HUP
  if [ -f $groups/cgroup.controllers ]; then
    echo "1000 1000000" >"$group/cpu.max"
  else
    echo 1000000 >"$group/cpu.cfs_period_us"
    echo 1000 >"$group/cpu.cfs_quota_us"
  fi || return 1
  train "$mpi" "$n" "$run" train.epochs=1 &
  job=$!
  until grep -qs '^written to' "$run.log" || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
  for pid in $(pgrep -f "mpirun.*run.dir=$run( |$)"); do
    if echo "$pid" >"$group/cgroup.procs"; then moved=$((moved + 1)); fi 2>/dev/null
  done
  wait $job || code=$?
  waited=$(awk '$1 == "nr_throttled" { print $2 }' "$group/cpu.stat")
  echo "| $mpi | $n | $code | $waited |"
  if [ $moved = 0 ] || [ "${waited:-0}" = 0 ]; then
    echo "ranks.sh: the launcher of $run was not late" >&2
    return 1
  fi
  [ $code = 0 ] || {
    echo "ranks.sh: the launcher of $run returned $code, see $run.log" >&2
    return 1
  }
}
# restore ends what late left, moves it out of its group, and removes that.
restore() {
  local pid
  for pid in $(pgrep -f "run.dir=$out/[a-z]*-ends( |$)"); do kill "$pid" 2>/dev/null || true; done
  while read -r pid; do echo "$pid" >"$above" || true; done <"$group/cgroup.procs" 2>/dev/null
  rmdir "$group"
}

resumes() {
  local mpi n run first epochs=1
  local ranks
  read -ra ranks <<<"${RESUMED-128 64 256}"
  [ ${#ranks[@]} -gt 0 ] || return 0
  printf '\n| MPI | ranks, an epoch each | weights digest |\n|---|---|---|\n'
  for mpi in $mpis; do
    run=$out/$mpi-resumed first=${ranks[0]} epochs=1
    train "$mpi" "$first" "$run" train.epochs=1 train.allreduce=reproducible
    for n in "${ranks[@]:1}"; do
      epochs=$((epochs + 1))
      launch "$mpi" "$n" "$(program "$mpi")" train --resume "$run" --set train.epochs=$epochs \
        --set run.ranks_per_node=8 >"$run-$n.log" 2>&1 </dev/null
    done
    echo "| $mpi | ${ranks[*]} | $(field "$run" weights_digest) |"
  done
}

failed=0
{
  runs
  dies
  ends || failed=1
  resumes
  exit $failed
} | tee "$out/table.md"
