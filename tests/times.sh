#!/usr/bin/env bash
# times.sh [SECONDS]: the tests of `make test`, one at a time, that take longer than SECONDS (3
# otherwise), slowest first, as a table. Ends with code 1 if a test fails.
set -euo pipefail
cd "$(dirname "$0")/.."
HALOGNN_QUIET=1 source ./env.sh
export HALOGNN_EMULATED_DEVICES=0
results=$(mktemp)
trap 'rm -f "$results"' EXIT
code=0
go test -json -count=1 -vet=off -timeout 40m -p 1 -parallel 1 ./... >"$results" || code=1
sed -n 's/.*"Action":"fail".*"Test":"\([^"]*\)".*/FAIL \1/p' "$results" >&2
echo '| s | test |'
echo '|--:|---|'
sed -n 's|.*"Action":"pass","Package":"halognn/\([^"]*\)","Test":"\([^"/]*\)","Elapsed":\([0-9.]*\).*|\3 \1 \2|p' \
  "$results" | awk -v least="${1:-3}" '$1 > least { printf "| %.1f | %s %s |\n", $1, $2, $3 }' |
  sort -t'|' -k2 -rn
exit $code
