#!/usr/bin/env bash
# planted.sh [-j N] [-t SECONDS] [NN ...]: do the tests find the faults of tests/planted, or those
# with the given numbers? Plants each fault in a copy of the last commit, N at a time (default 1),
# and runs tests until one fails, for SECONDS at most (default 5 minutes): for a C kernel those of
# kernels/, then those of the changed package, of the packages that import it, nearest first, and of
# the program. A failure counts if the same test passes without the fault. Prints a row of a
# Markdown table for each fault. Ends with code 1 if a fault is not found, and with 2 if one cannot
# be planted.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
root=$PWD limit=300 jobs=1
while getopts j:t: option; do
  case $option in
    j) jobs=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) echo "usage: planted.sh [-j N] [-t SECONDS] [NN ...]" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[[ $jobs =~ ^[1-9][0-9]*$ ]] || { echo "planted.sh: -j $jobs: want a number from 1" >&2; exit 2; }
# Data outside the checkout that tests read; copies need its path too.
export HALOGNN_DATA=${HALOGNN_DATA:-$root/../shared/data}

# in_make_test: whether `make test` runs the suite that found the fault.
in_make_test() { case "${suite[*]}" in *rest_tests*) return 1 ;; esac; }

faults=()
if [ $# = 0 ]; then faults=(tests/planted/*.diff); fi
for number in "$@"; do
  named=(tests/planted/"$number"-*.diff)
  [ -e "${named[0]}" ] || { echo "planted.sh: there is no fault $number" >&2; exit 2; }
  faults+=("${named[0]}")
done

# Copies have fixed paths, because the build cache knows packages by their paths.
copies=$root/build/planted scratch=$(mktemp -d) || exit
mkdir "$scratch/outcomes"
clean() {
  local running slot
  running=$(jobs -p)
  # shellcheck disable=SC2086 # one word for each process
  [ -z "$running" ] || kill $running 2>/dev/null
  wait
  for ((slot = 1; slot <= jobs; slot++)); do
    git worktree remove --force --force "$copies/$slot" 2>/dev/null || rm -rf "${copies:?}/$slot"
  done
  git worktree prune
  rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# importers PACKAGE: the package and those packages that import it, or whose tests do, nearest
# first.
importers() {
  local tested='{{join .TestImports " "}} {{join .XTestImports " "}}'
  go list -f "{{.ImportPath}} {{join .Imports \" \"}} : $tested" \
    ./src/... ./kernels ./profiling/... | awk -v from="$1" '
    { text[$1] = $0 }
    function reach(name, deep,   words, n, i, code, other) { # sets far[] of those that import name
      for (other in text) {
        n = split(text[other], words, " "); code = 1
        for (i = 2; i <= n; i++) {
          if (words[i] == ":") code = 0
          if (words[i] != name) continue
          if (!(other in tested) || tested[other] > deep) tested[other] = deep
          if (code && !(other in far)) { far[other] = deep; queue[++last] = other }
        }
      }
    }
    END {
      far[from] = tested[from] = 0; queue[++last] = from
      for (i = 1; i <= last; i++) reach(queue[i], far[queue[i]] + 1)
      for (name in tested) print tested[name], name
    }' | sort -n -k1,1 -k2,2 | cut -d' ' -f2
}

# run PACKAGE LOG COMMAND...: runs tests in the remaining time. If the command names tests, it sets
# test to the first that failed. 0: all passed. 1: one failed. 2: they do not compile. 3: the time
# is over.
run() {
  local log=$2 code=0
  package=$1 test=''
  shift 2
  [ $((limit - SECONDS + begin)) -gt 0 ] || return 3
  suite=("$@")
  timeout -k 10 $((limit - SECONDS + begin)) "$@" >"$log" 2>&1 &
  child=$!
  wait $child || code=$?
  case $code in
    0) return 0 ;;
    124 | 137) return 3 ;;
  esac
  if grep -qE '\[(build|setup) failed\]|^[^ ]+:[0-9]+:[0-9]+: error: |^# halognn/' "$log"; then
    return 2
  fi
  test=$(sed -n 's/^--- FAIL: \([^ ]*\).*/\1/p' "$log" | head -1)
  # a process that died was in the test that it began last
  [ -n "$test" ] || test=$(sed -n 's/^=== RUN  *\([^ ]*\).*/\1/p' "$log" | tail -1)
  return 1
}

# The suites, with the flags of tests/all.sh; -v tells in which test a process died. Only `make
# test-all` has the suites named rest_tests.
go_tests() { HALOGNN_EMULATED_DEVICES=0 go test -vet=off -failfast -v "$@"; }
kernel_tests() {
  make --silent --no-print-directory -j"$(nproc)" -C kernels BUILD="$PWD/build" test
}
mpi_rest_tests() { # as tests/mpi.sh does
  local n
  go test -c -o build/comm.test ./src/ranks/comm/mpi || return
  for n in 2 3 4; do
    (cd src/ranks/comm/mpi && "$HALOGNN_MPIRUN" -np "$n" ../../../../build/comm.test) || return
  done
}
program_tests() { make --silent --no-print-directory build && go_tests "$@" ./tests; }
export -f go_tests kernel_tests mpi_rest_tests program_tests

# search CHANGED LOG: runs the suites in their order until one fails.
search() {
  local changed=$1 log=$2 of
  case $changed in
    kernels/*)
      run kernels "$log" bash -c kernel_tests || return
      changed=kernels ;;
    *) changed=$(dirname "$changed") ;;
  esac
  for of in $(importers "halognn/$changed"); do
    run "${of#halognn/}" "$log" bash -c "go_tests $of" || return
  done
  run tests "$log" bash -c program_tests || return
  if [ "$changed" = src/ranks/comm/mpi ] && [ -n "${HALOGNN_MPIRUN:-}" ]; then
    run src/ranks/comm/mpi "$log" bash -c mpi_rest_tests
  fi
}

# again LOG: runs the failed test once more without the fault; it must pass.
again() {
  local begin=$SECONDS code=0 found=$test command=("${suite[@]}")
  if [ -n "$found" ]; then
    case ${suite[*]} in
      *'go_tests '*) command=(bash -c "go_tests -run '^$found\$' ./$package") ;;
      *program_tests) command=(bash -c "program_tests -run '^$found\$'") ;;
    esac
  fi
  run "$package" "$1" "${command[@]}" || code=$?
  test=$found
  return $code
}

# plant FAULT SLOT: prints the row of a fault, and notes whether the tests and `make test` caught
# it.
plant() {
  local fault=$root/$1 slot=$2 name begin=$SECONDS code=0 took how=no
  local package='' test='' suite=()
  name=$(basename "$1" .diff)
  local log=$scratch/$name outcome=$scratch/outcomes/$name
  cd "$copies/$slot" || return
  git checkout --quiet --force . && git clean --quiet -fd || return
  if ! git apply "$fault" 2>"$log"; then
    printf 'planted.sh: %s no longer applies:\n%s\n' "$name" "$(cat "$log")" >&2
    echo broken >"$outcome"
    return
  fi
  search "$(sed -n 's|^+++ b/||p' "$fault" | head -1)" "$log" || code=$?
  took=$((SECONDS - begin))
  if [ $code = 1 ]; then
    git apply -R "$fault" && again "$log.again" || code=4
  fi
  case $code in
    1)
      if in_make_test; then how=yes; fi
      echo "caught $how" >"$outcome"
      printf '| %s | %s %s | %d | %s |\n' "$name" "$package" "${test:-(a suite)}" $took $how ;;
    2 | 4)
      printf 'planted.sh: %s: %s %s:\n%s\n' "$name" "$package" \
        "$([ $code = 2 ] && echo 'does not compile' || echo "$test fails without the fault too")" \
        "$(tail -20 "$log")" >&2
      echo broken >"$outcome" ;;
    *)
      echo missed >"$outcome"
      printf '| %s | not caught%s | %d | no |\n' "$name" \
        "$([ $code = 3 ] && echo " in $limit s")" $took ;;
  esac
}

HALOGNN_QUIET=1 source ./env.sh
for ((slot = 1; slot <= jobs; slot++)); do
  rm -rf "${copies:?}/$slot"
  git worktree prune
  git worktree add --quiet --force --force --detach "$copies/$slot" HEAD || exit 2
  mkdir -p "$copies/$slot/build"
  # tests load this library; no fault is in its sources
  cp build/libhalognn_cuda_emulated.so "$copies/$slot/build/" 2>/dev/null
done
echo '| fault | caught by | seconds | in make test |'
echo '|---|---|---|---|'
# slot N: plants the N-th share of the faults in copy N.
slot() {
  local child='' i
  trap '[ -z "$child" ] || kill $child 2>/dev/null; exit 143' TERM
  # shellcheck source=/dev/null
  cd "$copies/$1" && HALOGNN_QUIET=1 source ./env.sh
  for ((i = $1 - 1; i < ${#faults[@]}; i += jobs)); do plant "${faults[i]}" "$1"; done
}
for ((n = 1; n <= jobs; n++)); do slot $n & done
wait
count() { find "$scratch/outcomes" -type f -exec cat {} + | grep -c "^$1"; }
caught=$(count caught)
printf '\n%d caught of %d, %d by make test\n' "$caught" ${#faults[@]} "$(count 'caught yes')"
[ "$(count broken)" = 0 ] || exit 2
[ "$caught" = ${#faults[@]} ]
