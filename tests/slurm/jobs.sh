#!/usr/bin/env bash
# jobs.sh: submits every script of jobs/ to the Slurm that SLURM_CONF names, waits, and checks what
# came of it.
#   tests/slurm/cluster.sh tests/slurm/jobs.sh
# Needs bin/halognn (SLURM_TEST_ROOT: that of another root, as make install lays it out). The
# cluster has 4 CPUs and 4 GPUs in name.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export HALOGNN_ROOT=${SLURM_TEST_ROOT:-$here} HALOGNN_QUIET=1
halognn=$HALOGNN_ROOT/bin/halognn
[ -x "$halognn" ] || { echo "jobs.sh: no $halognn; run make build" >&2; exit 1; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/halognn-jobs-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

job=0 log=''
# fails MESSAGE: ends the test with the log of the last job.
fails() {
  echo "FAILED: $1"
  echo "--- $log"
  cat "$log" 2>/dev/null
  scontrol show job "$job" 2>/dev/null
  exit 1
}
# submit OPTION... SCRIPT ARGUMENT...: leaves the job's number in job and its output in log.
submit() { job=$(sbatch --parsable "$@"); log=$(field StdOut); }
# field NAME: what Slurm knows of the last job.
field() { scontrol show job -o "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
# until SECONDS WHAT COMMAND...: waits until the command succeeds.
until_ok() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || fails "$what: not in time"
    sleep 0.2
  done
}
over() {
  case $(field JobState) in PENDING | CONFIGURING | RUNNING | COMPLETING | REQUEUED) return 1 ;; esac
}
# completes WHAT SECONDS: waits for the last job, which must succeed.
completes() {
  until_ok "$2" "$1" over
  [ "$(field JobState)" = COMPLETED ] || fails "$1: $(field JobState), exit code $(field ExitCode)"
  echo "ok: $1 ($(field RunTime))"
}
# value FILE KEY: one number or word of a summary.
value() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1/summary.json"; }
# is WHAT GOT WANT
is() { [ "$2" = "$3" ] || fails "$1 is $2; want $3"; }
exists() { [ -s "$1" ] || fails "there is no $1"; }

cat >config.yaml <<'YAML'
data: {parts: parts}
model: {layers: 2, hidden: 16}
sample: {fanouts: [5, 5], batch: 64, batch_scope: global}
train: {epochs: 2}
run: {ranks_per_node: 1}
YAML
"$halognn" generate --kind sbm --vertices 4000 --degree 8 --features 16 --classes 4 --seed 1 \
  --out data >/dev/null
jobs=$HALOGNN_ROOT/jobs
four=(--ntasks-per-node=4 --cpus-per-task=1) two=(--ntasks-per-node=2 --cpus-per-task=1)

# a chain, submitted at once: each waits for the one before it
submit "$jobs/partition.sbatch" data parts 4 --seed 1
parted=$job
submit --dependency="afterok:$parted" "${four[@]}" "$jobs/train.sbatch" config.yaml
trained=$job run=runs/halognn-$job
submit --dependency="afterok:$trained" "${two[@]}" "$jobs/infer.sbatch" "$run" --mode full
inferred=$job
follow() { job=$1; log=$(field StdOut); }
follow "$parted"
completes "partition.sbatch" 300
"$halognn" check parts >/dev/null || fails "the parts are damaged"
follow "$trained"
completes "train.sbatch, 4 ranks, after it" 300
is "ranks" "$(value "$run" ranks)" 4
digest=$(value "$run" loss_digest)
follow "$inferred"
completes "infer.sbatch, 2 ranks, after that" 300
exists "$run/predictions-$job.npy"

submit --array=1-2 "${two[@]}" "$jobs/sweep.sbatch" config.yaml --grid model.hidden=16,8 \
  --set train.epochs=1
array_over() { ! squeue --noheader --jobs="$job" 2>/dev/null | grep -q .; }
until_ok 300 "sweep.sbatch" array_over
study=runs/halognn-sweep-$job
is "the second run's width" "$(sed -n 's/^ *hidden: //p' "$study/model.hidden=8/config.yaml")" 8
is "the runs of the sweep's report" "$(($(wc -l <"$study/report/runs.csv") - 1))" 2
echo "ok: sweep.sbatch, 2 runs"

# The GPUs exist in name only: the test sees that Slurm gave one to each rank.
submit --gpus-per-node=2 "${two[@]}" "$jobs/train-gpu.sbatch" config.yaml --set compute.device=cpu
completes "train-gpu.sbatch, 2 ranks" 300
field TresPerNode | grep -q 'gpu:2' || fails "the job had no 2 GPUs"
is "ranks" "$(value "runs/halognn-gpu-$job" ranks)" 2

submit "${two[@]}" "$jobs/profile.sbatch" config.yaml cpu
completes "profile.sbatch, 2 ranks" 300
exists "runs/halognn-profile-$job/profile/cpu.pprof"

submit "${four[@]}" "$jobs/scaling.sbatch" config.yaml
completes "scaling.sbatch, 1, 2 and 4 ranks, strong and weak" 600
for k in 1 2 4; do
  is "ranks" "$(value "runs/halognn-scaling-$job/strong-$k" ranks)" $k
  is "ranks" "$(value "runs/halognn-scaling-$job/weak-$k" ranks)" $k
done
for kind in Strong Weak; do
  grep -q "$kind scaling" "runs/halognn-scaling-$job/report/report.md" || fails "no table of $kind scaling"
done

# A job at its time limit saves a checkpoint, is requeued, and ends with the numbers of a job that
# was not stopped.
long=(--set train.epochs=200 --set run.progress=lines)
submit "${four[@]}" "$jobs/train.sbatch" config.yaml "${long[@]}"
completes "train.sbatch, 200 epochs in one go" 600
digest=$(value "runs/halognn-$job" loss_digest)
submit "${four[@]}" "$jobs/train.sbatch" config.yaml "${long[@]}"
run=runs/halognn-$job
until_ok 300 "the first epochs" test -s "$run/metrics.jsonl"
scancel --signal=USR1 "$job"
until_ok 300 "the job was requeued" grep -q 'goes back into the queue' "$log"
# Slurm starts a requeued job again when its credential has expired: after 30 s in cluster.sh.
completes "train.sbatch, stopped by USR1, requeued and resumed" 600
is "restarts" "$(field Restarts)" 1
is "loss_digest of the run in two halves" "$(value "$run" loss_digest)" "$digest"

# A job that another one preempts saves within the grace time, and goes on after it.
submit "${four[@]}" "$jobs/train.sbatch" config.yaml "${long[@]}"
run=runs/halognn-$job low=$job
until_ok 300 "the first epochs" test -s "$run/metrics.jsonl"
submit --partition=urgent "${four[@]}" --output=urgent.log --wrap='squeue --noheader --format=%i:%T'
completes "a job of a higher partition" 300
grep -q "^$low:RUNNING" urgent.log && fails "both jobs had the CPUs"
follow "$low"
grep -q 'goes back into the queue' "$log" || fails "the job did not save when it was preempted"
completes "train.sbatch, preempted, requeued and resumed" 600
is "restarts" "$(field Restarts)" 1
is "loss_digest of the run in two halves" "$(value "$run" loss_digest)" "$digest"
