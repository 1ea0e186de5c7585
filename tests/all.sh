#!/usr/bin/env bash
# all.sh test|rest|fast: runs what `make test`, `make test-all` and `make test-fast` promise. Each
# step prints its time, or why it cannot run here. The last line counts the steps.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
HALOGNN_QUIET=1 source ./env.sh
passed=0 failed=0 skipped=0
clock=$(mktemp) || exit
step() { # step NAME COMMAND...
  local name=$1 begin=$SECONDS code=0 used times=$clock.$BASHPID
  shift
  printf '\n== %s\n' "$name"
  ( # a subshell, so that `times` is of this step alone
    code=0
    "$@" || code=$?
    times >"$times"
    exit $code
  ) || code=$?
  used=$(awk -F'[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$times")
  used="$((SECONDS - begin)) s, $used s of processors"
  case $code in
    0) passed=$((passed + 1)); printf -- '-- %s: ok, %s\n' "$name" "$used" ;;
    77) skipped=$((skipped + 1)); printf -- '-- %s: not run, see above\n' "$name" ;; # as automake
    *) failed=$((failed + 1)); printf -- '-- %s: FAILED, %s\n' "$name" "$used" ;;
  esac
}
# beside COMMAND...: runs steps beside those that follow. join waits for them, and prints and counts
# them. They have a process group of their own, which ends with this script.
lanes=() outputs=()
beside() {
  local said
  said=$(mktemp) || exit
  set -m
  ( # shellcheck disable=SC2030
    passed=0 failed=0 skipped=0
    "$@"
    echo "$passed $failed $skipped" >"$said.counts"
  ) >"$said" 2>&1 &
  lanes+=($!) outputs+=("$said")
  set +m
}
end_lanes() {
  local lane
  for lane in "${lanes[@]}"; do kill -TERM -- "-$lane" 2>/dev/null; done
  for lane in "${outputs[@]}"; do
    [ ! -e "$lane" ] || cat "$lane" # of a lane that was not joined
    rm -f "$lane" "$lane.counts"
  done
  rm -f "$clock"*
}
trap end_lanes EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
join() { # a second call finds nothing to join
  local n p f s
  for n in "${!lanes[@]}"; do
    wait "${lanes[n]}"
    cat "${outputs[n]}"
    p=0 f=1 s=0
    [ ! -s "${outputs[n]}.counts" ] || read -r p f s <"${outputs[n]}.counts"
    rm -f "${outputs[n]}"
    # shellcheck disable=SC2031
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done
  lanes=() outputs=()
}
summary() { printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped; [ $failed = 0 ]; }
leave_out() { skipped=$((skipped + 1)); printf '\n== %s: not run: %s\n' "$1" "$2"; }

formatted() { local bad; bad=$(gofmt -l kernels src tests); [ -z "$bad" ] || { echo "gofmt: $bad"; return 1; }; }
packages() { grep -rlE "$1" src --include='*.go' | xargs -n 1 dirname | sort -u | sed 's|^|./|'; }
units() {
  go list ./... | grep -vx halognn/tests | HALOGNN_EMULATED_DEVICES=0 xargs go test -vet=off -timeout 40m
}
program() { # FLAG...: the end-to-end tests, under the MPI that env.sh found
  HALOGNN_EMULATED_DEVICES=0 go test -vet=off -timeout 40m "$@" ./tests
}
kernels() { make --silent --no-print-directory -j"$(nproc)" -C kernels "$@" test; }
faults() { # COUNT SEED
  if [ -z "$HALOGNN_MPIRUN" ]; then echo "no mpirun was found"; return 77; fi
  go test -tags "$HALOGNN_TAGS,faults" ./src/base/fault &&
    go test -v -tags "$HALOGNN_TAGS,faults" -run "TestFaults|TestCtrlC" -count=1 -timeout 40m ./tests/faults \
      -args -faults "${HALOGNN_FAULT_COUNT:-$1}" -seed "$2"
}
devices() { # tests on an emulated device, which the unit tests of `make test` leave out
  go test -vet=off ./src/devices/compute/cuda && go test -vet=off -run '/^cuda$' ./src/model/nn &&
    go test -vet=off -run 'GPU|Offboard|Launches|OnDevices|Transport|Shuffles|ARankFailsWhile|TenSteps|Queued|OneWait|Pinned' \
      ./src/step/parallel ./src/runs/train ./src/runs/infer &&
    go test -vet=off -run 'GPU|Queued' ./tests
}
plain_build() ( # packages with other code without cgo, and the results of packages that use them
  local of with
  mapfile -t of < <(packages '^//go:build .*!cgo')
  mapfile -t with < <(packages '"halognn/src/(devices/compute/(cpu|cuda)|ranks/comm/mpi|topology/partition/metis)"')
  export CGO_ENABLED=0
  go build ./... && go vet ./... && go test -short -vet=off "${of[@]}" &&
    go test -short -vet=off -run '^Test(Golden.*|.*IsReference|.*AsTheReferenceDraws|NumbersAtEveryLevel|ScratchBytes|.*ForwardPass|ResumeChangesNoBit|Examine)$' "${with[@]}" &&
    go test -short -vet=off -run 'Infer|Devices|Precision|Kernel|DryRun|Blocks|Multilabel|Doctor|Bad|Trains|Plan|Auto' -skip 'Documented' ./tests
)
# The race detector is for what goroutines share; race.Alone leaves a test out. Of the tests with a
# device it runs those in which the device works beside goroutines: the detector does not see
# kernels.
races() { # the packages that start goroutines, or whose tests do
  local of
  mapfile -t of < <(packages '\bgo (func\b|[a-zA-Z.]+\()|\.Go\(|ants\.|RunWorld|mem\.Parallel|sample\.Sweep')
  HALOGNN_EMULATED_DEVICES=0 go test -short -race -vet=off -timeout 40m "${of[@]}" &&
    go test -short -race -vet=off -timeout 40m -run 'TestLinks(That|$)|CutsLinks|Staging|AnyThread|Queued|(With|On|Between)GPUs|Travel|OnDevices' \
      ./src/devices/compute/cuda ./src/step/parallel ./src/runs/train
}
# Checks that cost as much as the work (package invariant), in the packages that have them and those
# that drive them; the checks allocate. A misspelt tag would leave out the checks and their tests.
invariants() {
  local of tags=$HALOGNN_TAGS,invariants
  if [ "$(go list -tags "$tags" -f '{{.GoFiles}}' ./src/base/invariant)" != '[invariant.go on.go]' ]; then
    echo "the tags $tags do not switch on the checks"
    return 1
  fi
  mapfile -t of < <(packages '"halognn/src/base/invariant"')
  HALOGNN_EMULATED_DEVICES=0 go test -short -tags "$tags" -vet=off -timeout 40m -skip Allocate \
    "${of[@]}" ./src/rows/policy ./src/step/parallel ./src/forecast/simulate
}
shell_lint() {
  if ! command -v shellcheck >/dev/null 2>&1; then echo "shellcheck is not installed"; return 77; fi
  shellcheck env.sh && shellcheck -x tests/*.sh tests/*/*.sh profiling/*.sh profiling/lab/*.sh jobs/*.sh jobs/*.sbatch .ci/run
}
slurm() {
  local reason
  if reason=$(tests/slurm/cluster.sh true 2>&1) || [ $? != 69 ]; then
    step "Slurm: every job script, a stop and a resumption" tests/slurm/cluster.sh tests/slurm/jobs.sh
    step "the user guide on Slurm" env GUIDE=slurm tests/slurm/cluster.sh go test -count=1 -run 'TestGuide/slurm' ./tests
  else
    leave_out "Slurm" "$reason"
  fi
}
launched() {
  local mpi
  for mpi in openmpi mpich; do
    if command -v "mpicc.$mpi" >/dev/null 2>&1; then
      step "under mpirun: $mpi" tests/mpi.sh "$mpi"
    else
      leave_out "under mpirun: $mpi" "mpicc.$mpi is not installed"
    fi
  done
  step "one build under MPICH 5 and Intel MPI" tests/abi.sh
}
replays() {
  if ! command -v smpirun >/dev/null 2>&1; then echo "SimGrid is not installed"; return 77; fi
  program -run TestReplayOfAPlan
}
drawn=TestDrawnJobsTakeWhatWasPlanned # takes a minute and a half
others() {
  step "50 faults injected" faults 50 2
  step "20 drawn jobs take what was planned" program -run "$drawn"
  step "a trained model in PyTorch" tests/pytorch.sh
  step "container recipes" tests/container.sh
  step "plans replayed by SimGrid" replays
}

case ${1:-test} in
  fast)
    step "gofmt" formatted
    step "go vet" go vet ./...
    step "unit tests, and smoke tests of the program" go test -short -skip '^TestEndings$' ./src/... ./tests
    ;;
  test)
    step "gofmt" formatted
    data=${HALOGNN_DATA:-../shared/data}
    [ -d "$data" ] ||
      leave_out "imports of real data sets" "there is no $data; HALOGNN_DATA names the directory that holds them"
    if [ -n "$HALOGNN_MPIRUN" ]; then
      beside step "the program under MPI" program -run 'Under(Any)?MPI'
    else
      leave_out "the program under MPI" "no mpirun was found"
    fi
    beside step "the program in one process, README and guide" program -skip "Under(Any)?MPI|$drawn"
    beside step "20 faults injected" faults 20 1
    step "go vet" go vet ./...
    step "C kernels, every SIMD level" kernels BUILD="$PWD/build"
    step "unit tests" units
    ;;
  rest)
    beside slurm
    beside launched
    beside others
    step "staticcheck" go tool staticcheck ./...
    step "shellcheck" shell_lint
    step "C kernels under ASan and UBSan, every SIMD level" kernels BUILD="$PWD/build/sanitize" SANITIZE=1
    step "tests on an emulated device" devices
    step "CUDA: kernels by nvcc, and on a GPU or an emulated device" tests/cuda.sh
    step "plain Go: build and tests with CGO_ENABLED=0" plain_build
    step "race detector, in-process ranks" races
    step "invariants" invariants
    join
    step "make install" tests/installed.sh # installs what the steps have built
    ;;
  *)
    echo "usage: all.sh test|rest|fast" >&2
    exit 2
    ;;
esac
join
summary
