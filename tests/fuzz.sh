#!/bin/bash
# fuzz.sh [TIME [PATTERN]]: runs every fuzz target whose name contains PATTERN for TIME (default
# 6m), one after the other, with one worker. An input that fails goes to testdata/fuzz beside the
# target, and fails the tests from then on. Prints a line for each target: package, target,
# executions, interesting inputs, seconds, outcome. Ends with code 1 if any target failed.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
HALOGNN_QUIET=1 . ./env.sh
time=${1:-6m} pattern=${2:-} found=0 targets=0
# KiB: memory beyond the bounds of the targets must not exhaust the machine
ulimit -v $((24 << 20))
# shellcheck disable=SC2013 # names of files and functions have no blanks
for file in $(grep -rl --include='*_test.go' '^func Fuzz' src | sort); do
  # shellcheck disable=SC2013
  for target in $(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' "$file" | grep -- "$pattern"); do
    log=$(mktemp) begin=$SECONDS outcome=ok targets=$((targets + 1))
    # Minimising inputs that are merely interesting would take most of the time. A worker that is
    # interrupted at the end of the time reports "context deadline exceeded", which is no failure
    # (go.dev/issue/75804).
    go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel 1 >"$log" 2>&1 ||
      { grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; } || outcome=FAILED
    printf '%-24s %-24s %s  %ds  %s\n' "$(dirname "$file")" "$target" \
      "$(grep -o 'execs: [0-9]*.*' "$log" | tail -1 | sed 's/ ([^)]*)//g')" $((SECONDS - begin)) "$outcome"
    if [ "$outcome" != ok ]; then found=1 && grep -v '^fuzz: elapsed' "$log" | head -60; fi
    rm -f "$log"
  done
done
[ $targets != 0 ] || { echo "fuzz.sh: no target's name has $pattern in it" >&2; exit 2; }
exit $found
