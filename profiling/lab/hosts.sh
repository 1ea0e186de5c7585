#!/usr/bin/env bash
# hosts.sh [-n HOSTS] [-p RANKS] [-r RATE] [-c CORES] [-e] -- COMMAND [ARG...]: runs COMMAND on
# several network hosts of this one machine, over links of a limited rate, so that remote traffic
# costs as much as on a cluster.
#
#   profiling/lab/hosts.sh -n 4 -r 1gbit -- bin/halognn train --config inputs/demo.yaml
#
#   -n HOSTS  how many hosts [4]
#   -p RANKS  ranks of each, under Open MPI; they share the host's memory [1]
#   -r RATE   what each host may send, in tc's form: 200mbit, 1gbit, none [none]
#   -c CORES  processor time of each host, as 0.25 [unlimited]
#   -e        runs COMMAND once on each host, without MPI. HOST is the number of the host, from 0,
#             HOSTS the number of hosts, and ADDRESSES has all addresses
#
# A host is a network namespace with its own name, /dev/shm and TMPDIR (otherwise Open MPI's daemons
# would share a session directory), linked to a bridge. A token bucket (tc tbf) limits what it
# sends. A cgroup with a period of 10 ms limits its processor time; the period is short so that no
# rank waits long for its share. Needs root, iproute2 and, without -e, Open MPI. Nothing leaves the
# machine, and everything is removed at the end.
set -euo pipefail
usage() { sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//p}' "$0"; exit "$1"; }
hosts=4 per=1 rate=none cores='' each=''
while [ $# -gt 0 ]; do
  case $1 in
    -n) hosts=${2:?}; shift 2 ;;
    -p) per=${2:?}; shift 2 ;;
    -r) rate=${2:?}; shift 2 ;;
    -c) cores=${2:?}; shift 2 ;;
    -e) each=yes; shift ;;
    -h | --help) usage 0 ;;
    --) shift; break ;;
    *) usage 2 >&2 ;;
  esac
done
[ $# -gt 0 ] || usage 2 >&2
if ! [[ $hosts =~ ^[0-9]+$ ]] || [ "$hosts" -lt 1 ] || [ "$hosts" -gt 64 ]; then
  echo "hosts.sh: -n $hosts: give 1 to 64 hosts" >&2
  exit 2
fi
if ! [[ $per =~ ^[0-9]+$ ]] || [ "$per" -lt 1 ]; then
  echo "hosts.sh: -p $per: give at least 1 rank" >&2
  exit 2
fi
units='([kmgtKMGT]i?)?(bit|bps)'
if [ "$rate" != none ] && ! [[ $rate =~ ^[0-9]+(\.[0-9]+)?${units}$ && $rate =~ [1-9] ]]; then
  echo "hosts.sh: -r $rate: give a rate as 200mbit or 1gbit, or none" >&2
  exit 2
fi
[ "$(id -u)" = 0 ] || { echo "hosts.sh: network namespaces need root" >&2; exit 2; }
for tool in ip tc; do
  command -v $tool >/dev/null || {
    echo "hosts.sh: $tool is missing: install iproute2" >&2
    exit 2
  }
done

id=$$ work=$(mktemp -d)
net=10.$((id / 250 % 200 + 20)).$((id % 250))
group() { # group I: the directory of host I's cgroup
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/halognn-$id-$1"
  else echo "/sys/fs/cgroup/cpu/halognn-$id-$1"; fi
}
clean() {
  trap - EXIT INT TERM
  local i
  for ((i = 0; i < hosts; i++)); do
    ip netns pids "h$id-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "h$id-$i" 2>/dev/null || true
    [ -z "$cores" ] || for _ in 1 2 3 4 5; do
      rmdir "$(group "$i")" 2>/dev/null && break
      sleep 0.2
    done
  done
  ip link del "b$id" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

limit() { # limit I: makes host I's cgroup
  local dir us
  dir=$(group "$1") us=$(awk -v c="$cores" 'BEGIN { printf "%d", c * 10000 }')
  [ "$us" -ge 1000 ] || { echo "hosts.sh: -c $cores: give at least 0.1 cores" >&2; exit 2; }
  mkdir "$dir"
  if [ -f "$dir/cpu.max" ]; then echo "$us 10000" >"$dir/cpu.max"
  else echo 10000 >"$dir/cpu.cfs_period_us"; echo "$us" >"$dir/cpu.cfs_quota_us"; fi
}

ip link add "b$id" type bridge
ip addr add "$net.254/24" dev "b$id"
ip link set "b$id" up
list='' slots=''
for ((i = 0; i < hosts; i++)); do
  ns=h$id-$i
  ip netns add "$ns"
  ip link add "v$id-$i" type veth peer name eth0 netns "$ns"
  ip link set "v$id-$i" master "b$id" up
  ip -n "$ns" link set lo up
  ip -n "$ns" addr add "$net.$((i + 1))/24" dev eth0
  ip -n "$ns" link set eth0 up
  [ "$rate" = none ] ||
    tc -n "$ns" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
  [ -z "$cores" ] || limit "$i"
  list=$list${list:+,}$net.$((i + 1)) slots=$slots${slots:+,}$net.$((i + 1)):$per
done

# enter ADDRESS COMMAND...: runs the command on that host.
cat >"$work/enter" <<A
#!/usr/bin/env bash
i=\$((\${1##*.} - 1)); shift
[ -z "$cores" ] || echo \$\$ >"\$(dirname "$(group 0)")/halognn-$id-\$i/cgroup.procs"
exec ip netns exec h$id-\$i unshare -mu bash -c '
  hostname h$id-\$1; mount -t tmpfs tmpfs /dev/shm; mkdir -p $work/\$1
  export TMPDIR=$work/\$1; eval "\$0"' "\$*" "\$i"
A
chmod +x "$work/enter"

if [ -n "$each" ]; then
  pids=() code=0
  printf -v command '%q ' "$@"
  for ((i = 0; i < hosts; i++)); do
    "$work/enter" "$net.$((i + 1))" "export HOST=$i HOSTS=$hosts ADDRESSES=$list; $command" &
    pids+=($!)
  done
  for p in "${pids[@]}"; do wait "$p" || code=$?; done
  exit $code
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun=$(command -v mpirun.openmpi || command -v mpirun)
"$mpirun" --mca plm_rsh_agent "$work/enter" --host "$slots" -np "$((hosts * per))" \
  --map-by slot --bind-to none --mca btl tcp,self,vader \
  --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" "$@"
