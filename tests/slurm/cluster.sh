#!/usr/bin/env bash
# cluster.sh COMMAND...: runs the command beside a Slurm of its own, and stops that Slurm whatever
# happens.
#
#   munged ── slurmctld ── slurmd      one node, this machine, with 4 CPUs and 4 GPUs in name
#      └───── all in one directory: configuration, key, sockets, state and logs; SLURM_CONF names it to the command
#
# Ports are free ones, so that it disturbs no Slurm that is there. It needs Debian's slurm-wlm (or
# the same programs from elsewhere), and neither systemd nor cgroups: containers will do. As root or
# not; jobs run as the user who starts it. The exit code is the command's; 69 (EX_UNAVAILABLE) says,
# with the reason, that there can be no Slurm here.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: cluster.sh COMMAND..." >&2; exit 2; }
PATH=$PATH:/usr/sbin:/sbin # where the daemons are
for program in munged slurmctld slurmd sbatch srun scontrol; do
  command -v $program >/dev/null 2>&1 || {
    echo "no $program on the PATH; install slurm-wlm (Debian, Ubuntu)"
    exit 69
  }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/halognn-slurm-XXXXXX")
chmod 755 "$dir"
export SLURM_CONF=$dir/slurm.conf
daemons=() command=''

# ours: the processes that know our Slurm: daemons, steps, and what they started. (grep itself began
# after the list was made.)
ours() { grep -lsFzx "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ | tr -dc '0-9\n' || true; }
stop() {
  local code=$? p
  trap '' INT TERM
  trap - EXIT
  [ $code = 0 ] || [ $code = 69 ] || tail -n "${SLURM_TEST_TAIL:-20}" \
    "$dir"/{munged,slurmctld,slurmd}.log >&2 || true
  [ -z "$command" ] || kill "$command" 2>/dev/null || true
  timeout 5 scancel --quiet --user="$(id -un)" >/dev/null 2>&1 || true
  for p in "${daemons[@]}"; do kill "$p" 2>/dev/null || true; done
  for _ in {1..50}; do [ -n "$(ours)" ] || break; sleep 0.1; done
  for p in $(ours); do kill -KILL "$p" 2>/dev/null || true; done
  wait 2>/dev/null
  rm -rf "$dir"
  exit $code
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# free_port: a port on which nothing listens at this moment.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do
    (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port; return; }
  done
}
# start NAME COMMAND...: a daemon in the foreground of a job of ours, with its log.
start() {
  local name=$1
  shift
  "$@" >>"$dir/$name.log" 2>&1 &
  daemons+=($!)
}
# until_ok SECONDS WHAT COMMAND...: waits until the command succeeds.
until_ok() {
  local seconds=$1 what=$2 try
  shift 2
  for ((try = 0; try < seconds * 5; try++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  echo "cluster.sh: $what: not after $seconds s" >&2
  return 1
}

host=$(hostname -s) user=$(id -un)
mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool"
# PMIx refuses a step whose directory is left from another cluster's step of the same number
mkdir -m 1777 "$dir/tmp"
(umask 077; head -c 128 /dev/urandom >"$dir/munge/key")
cat >"$SLURM_CONF" <<CONF
ClusterName=halognn
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=30
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
TmpFS=$dir/tmp
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,requeue_delay=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=600
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 Gres=gpu:4 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE OverSubscribe=FORCE:1 State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes=$host MaxTime=INFINITE OverSubscribe=NO State=UP PriorityTier=2
CONF
for device in null zero full urandom; do # GPUs in name: Slurm counts device files
  echo "NodeName=$host Name=gpu File=/dev/$device"
done >"$dir/gres.conf"

start munged munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
  --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed" --log-file="$dir/munge/log"
until_ok 120 "munged answers" munge --socket="$dir/munge/socket" --no-input
start slurmctld slurmctld -D -i
start slurmd slurmd -D -N "$host"
until_ok 120 "the node is idle" bash -c 'sinfo --noheader --format=%T | grep -qx idle'
# a shell that waits is interrupted at once by a signal; one whose foreground command runs is not
timeout --kill-after=5 "${SLURM_TEST_SECONDS:-1500}" "$@" &
command=$!
wait $command
