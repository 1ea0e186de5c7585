# shellcheck shell=bash
# runs.sh: common functions of the scripts that compare runs. They source it first, in the
# repository root. A script called without arguments, or with -h, prints the comment at its head and
# ends here. It reads the variables LAUNCH, RANKS, CONFIG and HALOGNN.

source profiling/usage.sh 1 "$@"
HALOGNN_QUIET=1 source ./env.sh
ranks=${RANKS:-4}
launch=${LAUNCH:-$HALOGNN_MPIRUN -np $ranks}
config=${CONFIG:-inputs/slow-network.yaml}
program=${HALOGNN:-bin/halognn}

# need WHAT MAKER DIR...: ends the script unless each DIR holds WHAT, which MAKER makes.
need() {
  local what=$1 maker=$2 dir
  shift 2
  for dir in "$@"; do
    [ -f "$dir/meta.json" ] && continue
    echo "$(basename "$0"): $dir holds no $what; $maker makes one" >&2
    exit 2
  done
}
need_parts() { need parts "halognn partition" "$@"; }
need_dataset() { need dataset "halognn generate or import" "$@"; }

# train RATE PARTS DIR KEY=VALUE...: trains a run into DIR, where each rank is a node of its own.
# Its output goes to DIR.log.
train() {
  local rate=$1 parts=$2 dir=$3 set=() kv
  shift 3
  for kv in "$@"; do set+=(--set "$kv"); done
  rm -rf "$dir"
  # shellcheck disable=SC2086  # LAUNCH is a command with arguments
  ${launch//%r/$rate} "$program" train --config "$config" --set data.parts="$parts" \
    --set run.dir="$dir" --set run.ranks_per_node=1 "${set[@]}" >"$dir.log" 2>&1 </dev/null || {
    echo "$(basename "$0"): the run in $dir failed; see $dir.log" >&2
    tail -5 "$dir.log" >&2
    exit 1
  }
}

# number DIR KEY: a number or word of the run's summary.
number() {
  sed -n "s/^ *\"$2\": \"\{0,1\}\([0-9a-z.+-]*\)\"\{0,1\},*$/\1/p" "$1/summary.json" | head -1
}

# fastest DIR...: the run with the shortest epoch.
fastest() {
  local dir
  for dir in "$@"; do echo "$(number "$dir" epoch_seconds) $dir"; done | sort -g |
    sed -n '1s/^[^ ]* //p'
}

# same_digest DIR...: says whether the runs have the same loss_digest; fails if not.
same_digest() {
  local dir digests
  digests=$(for dir in "$@"; do number "$dir" loss_digest; done | sort -u)
  if [ "$(wc -l <<<"$digests")" = 1 ]; then
    echo "check: all runs have loss_digest $digests"
  else
    echo "check FAILED: loss digests differ:" "${digests//$'\n'/ }"
    return 1
  fi
}
