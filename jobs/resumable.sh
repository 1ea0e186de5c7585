# shellcheck shell=bash
# resumable.sh: sourced by the job scripts that train; it has no use of its own.

# train RUN ARGUMENT...: trains into the run directory RUN on all ranks of the job, from where an earlier try of the same job left off.
# The time limit (--signal=USR1@...), a preemption or `scancel --signal=USR1 JOB` make the ranks finish their step, save a checkpoint and
# exit with 75: the job then goes back into the queue under its number, and comes here again.
train() {
  local run=$1 code=0
  shift
  if [ -n "$(ls "$run/checkpoints" 2>/dev/null)" ]; then set -- --resume "$run" "$@"; fi
  # srun does not take over --cpus-per-task from sbatch (since Slurm 22.05).
  srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=cores \
    "$HALOGNN_ROOT/bin/halognn" train --set run.dir="$run" "$@" || code=$?
  if [ $code = 75 ]; then
    echo "saved at a checkpoint; job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
  fi
  return $code
}
