# shellcheck shell=bash
# resumable.sh: the job scripts that train source it; it does nothing by itself.

# resumable COMMAND...: runs the command, a `halognn train --resume`. At the time limit
# (--signal=USR1@...), at a preemption or by `scancel --signal=USR1 JOB` its ranks finish their
# step, save a checkpoint and exit with 75. The job then goes back into the queue under its number,
# and its next try continues from the checkpoint.
resumable() {
  local code=0
  "$@" || code=$?
  if [ $code = 75 ]; then
    echo "saved at a checkpoint; job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
  fi
  [ $code = 0 ] || exit $code
}
