#!/usr/bin/env bash
# replay.sh DIR: replays with SimGrid (apt-get install libsimgrid-dev) what `halognn plan --trace
# DIR` wrote. Prints the seconds of a step on DIR/platform.xml, which you may edit or replace by
# another SimGrid platform with the same host names, and on a network that takes no time
# (DIR/ideal.xml). Their ratio is POP's transfer efficiency.
set -euo pipefail
[ $# = 1 ] || {
  echo "usage: profiling/replay.sh DIR" >&2
  exit 2
}
dir=$1
for name in warm/trace.txt more/trace.txt hosts platform.xml ideal.xml; do
  [ -r "$dir/$name" ] || {
    echo "replay.sh: there is no $dir/$name; write it by halognn plan --trace $dir" >&2
    exit 2
  }
done
command -v smpirun >/dev/null || {
  echo "replay.sh: there is no smpirun; install SimGrid (apt-get install libsimgrid-dev)" >&2
  exit 2
}
dir=$(cd "$dir" && pwd)

# simulated LENGTH PLATFORM: the seconds of a trace, on a platform.
simulated() {
  local text
  text=$(cd "$dir/$1" && smpirun -np "$(wc -l <trace.txt)" -platform "$dir/$2.xml" -hostfile "$dir/hosts" \
    -replay trace.txt --log=root.thres:warning --log=smpi_replay.thres:info 2>&1) || {
    rm -f "$dir/$1"/smpitmp-*
    echo "$text" >&2
    echo "replay.sh: SimGrid could not replay $dir/$1 on $dir/$2.xml, see above" >&2
    exit 1
  }
  sed -n 's/.*Simulation time //p' <<<"$text"
}

# steps LENGTH: the number of its steps; each ends with one ready minibatch.
steps() { grep -c '^[0-9]* compute' "$dir/$1/0.trainer"; }

more=$(($(steps more) - $(steps warm)))
took=$SECONDS
declare -A step
for network in platform ideal; do
  long=$(simulated more "$network")
  short=$(simulated warm "$network")
  step[$network]=$(awk "BEGIN { print ($long - $short) / $more }")
done
awk -v a="${step[platform]}" -v b="${step[ideal]}" -v n="$(wc -l <"$dir/more/trace.txt")" -v t="$((SECONDS - took))" 'BEGIN {
  printf "seconds of a step     %.6g\n", a
  printf "on an ideal network   %.6g\n", b
  printf "transfer efficiency   %.2f %%\n", 100 * b / a
  printf "processes             %d, simulated in %d s\n", n, t
}'
