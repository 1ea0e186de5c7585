#!/usr/bin/env bash
# all.sh: everything that `make test` promises, in the order of "fails fastest". Each step prints its
# time; what cannot run here says so. The last line counts. `all.sh fast` runs what `make test-fast`
# promises.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
HALOGNN_QUIET=1 source ./env.sh
passed=0 failed=0 skipped=0
step() { # step NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  local code=0
  "$@" || code=$?
  case $code in
    0) passed=$((passed + 1)); printf -- '-- %s: ok, %d s\n' "$name" $((SECONDS - begin)) ;;
    77) skipped=$((skipped + 1)); printf -- '-- %s: not run, see above\n' "$name" ;; # as automake has it
    *) failed=$((failed + 1)); printf -- '-- %s: FAILED, %d s\n' "$name" $((SECONDS - begin)) ;;
  esac
}
# beside COMMAND...: runs steps that mostly wait beside those that compute; join waits for them, and prints and counts them.
# They have a process group of their own, which ends with this script.
beside() {
  said=$(mktemp) || exit
  set -m
  ( # shellcheck disable=SC2030
    passed=0 failed=0 skipped=0
    "$@"
    echo "$passed $failed $skipped" >"$said.counts"
  ) >"$said" 2>&1 &
  behind=$!
  set +m
  trap 'kill -TERM -- -$behind 2>/dev/null; rm -f "$said" "$said.counts"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}
join() {
  local p=0 f=1 s=0
  wait "$behind"
  cat "$said"
  [ ! -s "$said.counts" ] || read -r p f s <"$said.counts"
  # shellcheck disable=SC2031
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
summary() { printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped; [ $failed = 0 ]; }
leave_out() { skipped=$((skipped + 1)); printf '\n== %s: not run: %s\n' "$1" "$2"; }

formatted() { local bad; bad=$(gofmt -l kernels src tests); [ -z "$bad" ] || { echo "gofmt: $bad"; return 1; }; }
packages() { grep -rlE "$1" src --include='*.go' | xargs -n 1 dirname | sort -u | sed 's|^|./|'; }
units() { go list ./... | grep -vx halognn/tests | xargs go test -vet=off -timeout 40m ${here:+-skip UnderMPI}; }
plain_build() ( # the packages that have other code without cgo; what those that use it compute; and of the program, what the unit tests have not tried with the same code
  local of with
  mapfile -t of < <(packages '^//go:build .*!cgo')
  mapfile -t with < <(packages '"halognn/src/(compute/(cpu|cuda)|comm/mpi|partition/metis)"')
  export CGO_ENABLED=0
  go build ./... && go vet ./... && go test -short -vet=off "${of[@]}" &&
    go test -short -vet=off -run '^Test(Golden.*|.*IsReference|.*AsTheReferenceDraws|NumbersAtEveryLevel|ScratchBytes|.*ForwardPass|ResumeChangesNoBit|Examine)$' "${with[@]}" &&
    go test -short -vet=off -run 'Infer|Devices|Precision|Kernel|DryRun|Blocks|Multilabel|Doctor|Bad|Trains|Plan|Auto' -skip 'Documented' ./tests
)
sanitized() { make --silent --no-print-directory -j"$(nproc)" -C kernels BUILD="$PWD/build/sanitize" SANITIZE=1 test; }
faults() { go test -tags "$HALOGNN_TAGS,faults" -count=1 ./src/fault && go test -v -tags "$HALOGNN_TAGS,faults" -run "TestFaults|TestCtrlC" -count=1 -timeout 30m ./tests/faults -args -faults "${HALOGNN_FAULT_COUNT:-50}"; }
# What goroutines share is what the race detector is for; these compute on one, launch processes, or run in a browser, and are the slowest.
alone='^(TestCountsEqualANaiveRecount|TestGradientsAgreeWithFiniteDifferences|TestRowsAreThoseOfTheMinibatches|TestWhatBindsOnAGPU'
alone+='|TestWhatFitsANode|TestMemoryOfEvaluationWithItsOwnFanouts|TestAutoTriesWindowsOfManyEpochs|TestInABrowser|TestRepeats|TestStepAllocatesNothing'
alone+='|Test.*IsUnbiased|TestNumbersAtEveryLevel|TestRemoteIsReference|TestLaborPredictsSimulation|TestMemoryIsThatOfTheFormula|TestLayersEstimateAllNeighbours'
alone+='|TestVectorLevelsChangeNothing|TestRoundedFactors|TestEnginesStartNoThreads|TestImport.*|TestLinksDoNotLeak|TestEndings)$'
races() { # of the packages that start goroutines, or whose tests do
  local of
  mapfile -t of < <(packages '\bgo (func\b|[a-zA-Z.]+\()|\.Go\(|ants\.|RunWorld|mem\.Parallel|sample\.Sweep')
  go test -short -race -vet=off -timeout 40m -skip "$alone" "${of[@]}"
}
waiting() {
  step "tests of the program" go test -vet=off -timeout 40m ${here:+-skip UnderMPI} ./tests
  if [ -n "$HALOGNN_MPIRUN" ]; then
    step "faults injected" faults
  else
    leave_out "faults injected" "no mpirun was found"
  fi
  if reason=$(tests/slurm/cluster.sh true 2>&1) || [ $? != 69 ]; then
    step "Slurm: every job script, a stop and a resumption" tests/slurm/cluster.sh tests/slurm/jobs.sh
    step "the user guide on Slurm" env GUIDE=slurm tests/slurm/cluster.sh go test -count=1 -run 'TestGuide/slurm' ./tests
  else
    leave_out "Slurm" "$reason"
  fi
}
late() {
  step "a trained model in PyTorch" tests/pytorch.sh
  step "make install" tests/installed.sh
  step "container recipes" tests/container.sh
}
shell_lint() { shellcheck env.sh && shellcheck -x tests/*.sh tests/*/*.sh profiling/*.sh jobs/*.sh jobs/*.sbatch .ci/run; }

step "gofmt" formatted
step "go vet" go vet ./...
if [ "${1:-}" = fast ]; then
  step "unit tests, and smoke tests of the program" go test -short -skip '^TestEndings$' ./src/... ./tests
  summary
  exit
fi
step "staticcheck" go tool staticcheck ./...
if command -v shellcheck >/dev/null 2>&1; then step "shellcheck" shell_lint; else leave_out "shellcheck" "it is not installed"; fi
step "C kernels under ASan and UBSan, every SIMD level" sanitized
# What is named UnderMPI runs below under each MPI that is here; without them, under the one that is.
here=()
for mpi in openmpi mpich; do ! command -v mpicc.$mpi >/dev/null 2>&1 || here+=("$mpi"); done
beside waiting
step "unit tests" units
step "CUDA: kernels by nvcc, and on a GPU or an emulated device" tests/cuda.sh
data=${HALOGNN_DATA:-../shared/data}
[ -d "$data" ] || leave_out "imports of real data sets" "there is no $data; set HALOGNN_DATA to the directory that holds them"
step "plain Go: build and tests with CGO_ENABLED=0" plain_build
step "race detector, in-process ranks" races
join
beside late
for mpi in openmpi mpich; do
  if [[ " ${here[*]} " = *" $mpi "* ]]; then
    step "under mpirun: $mpi" tests/mpi.sh $mpi
  else
    leave_out "under mpirun: $mpi" "mpicc.$mpi is not installed"
  fi
done
join
summary
