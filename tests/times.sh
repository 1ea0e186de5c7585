#!/usr/bin/env bash
# times.sh [SECONDS [PACKAGE...]]: lists the tests of `make test`, or of some packages, that take
# more than SECONDS (default 3) of processor time, each run alone in a process. The table has the
# processor time, which hardly depends on other work of the machine, and the elapsed time. Ends with
# code 1 if a test fails.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
make --silent --no-print-directory build
export HALOGNN_EMULATED_DEVICES=0 HALOGNN_BIN=$PWD/bin/halognn
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
code=0 TIMEFORMAT='%U %S %R' least=${1:-3}
shift $(($# > 0))
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "${@:-./...}"); do
  cd "$package"
  name=${package#"$HALOGNN_ROOT"/}
  go test -c -vet=off -o "$scratch/test" .
  for test in $("$scratch/test" -test.list '^Test'); do
    { time "$scratch/test" -test.run "^$test\$" >"$scratch/out" 2>&1; } 2>"$scratch/time" || {
      { echo "FAIL $name $test"; tail -20 "$scratch/out"; } >&2
      code=1
    }
    echo "$(cat "$scratch/time") $name $test" >>"$scratch/all"
  done
done
echo '| processor s | s | test |'
echo '|--:|--:|---|'
awk -v least="$least" '$1 + $2 > least { printf "| %.1f | %.1f | %s %s |\n", $1 + $2, $3, $4, $5 }' \
  "$scratch/all" | sort -t'|' -k2 -rn
awk '{ all += $1 + $2 } END { printf "\n%d tests, %.0f s of processors\n", NR, all }' "$scratch/all"
exit $code
