# shellcheck shell=bash
# resumable.sh: sourced by the job scripts that train; it has no use of its own.

# resumable COMMAND...: runs the command, a `halognn train --resume`. The time limit
# (--signal=USR1@...), a preemption or `scancel --signal=USR1 JOB` make its ranks finish their step,
# save a checkpoint and exit with 75: the job then goes back into the queue under its number, and
# its next try goes on from there.
resumable() {
  local code=0
  "$@" || code=$?
  if [ $code = 75 ]; then
    echo "saved at a checkpoint; job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
  fi
  [ $code = 0 ] || exit $code
}
