#!/usr/bin/env bash
# merge.sh RUN [cpu|heap|block|mutex]: merges the pprof profiles of all ranks of a run, which was
# trained with --profile, into RUN/profile/KIND.pprof. It is the sum over the ranks and, for a
# resumed run, over its starts. The profiles of single ranks are in RUN/profile/rank-RRRR/ and
# RUN/profile-2/rank-RRRR/.
set -euo pipefail
# shellcheck source=profiling/usage.sh
source "$(dirname "$0")/usage.sh" 1 "$@"
usage="usage: merge.sh RUN [cpu|heap|block|mutex]"
run=$1 kind=${2:-cpu}
case $kind in
  cpu | block | mutex) file=$kind.pprof ;;
  heap) file=mem.pprof ;;
  *)
    echo "$usage (a Go execution trace is looked at rank by rank:" \
      "go tool trace RUN/profile/rank-0000/trace.out)" >&2
    exit 2
    ;;
esac
shopt -s nullglob
profiles=("$run"/profile/rank-*/"$file" "$run"/profile-*/rank-*/"$file")
[ ${#profiles[@]} -gt 0 ] || {
  echo "merge.sh: no $run/profile/rank-*/$file: train with --profile $kind" >&2
  exit 3
}
mkdir -p "$run/profile"
export CGO_ENABLED=0 # go builds its tools when they are first used: without the flags of halognn
why=$(go tool pprof -proto -output "$run/profile/$kind.pprof" "${profiles[@]}" 2>&1) || {
  echo "merge.sh: $why" >&2
  exit 3
}
echo "$run/profile/$kind.pprof: ${#profiles[@]} ranks"
