#!/usr/bin/env bash
# gpu_day.sh: runs what needs a GPU, the most valuable parts first, in commands of at most 9
# minutes. The parts take 720 seconds together, so they fit on a machine that is lent for a quarter
# of an hour, takes 100 seconds to start, and cannot download anything. With more time, there are
# more parts.
#
#   gpu_day.sh pack            where Go, nvcc and the libraries are: builds the program, the tests and
#                              the CUDA library for sm_80, sm_90 and later, and packs them with MPI,
#                              OpenBLAS, oneDNN, METIS, hwloc and what these need into
#                              build/gpu-day.tar.xz. Carry that and the repository, together below
#                              64 MiB. Nothing is built on the machine: the CUDA library has the
#                              runtime in it, and loads the machine's cuBLAS, of CUDA 11 to 13. PYTHON
#                              names a Python with the machine's version of PyTorch, for which the
#                              library that PyG samples by is built; WHEELS a folder where that was done.
#   gpu_day.sh run RESULTS [SECONDS]
#                              on the machine: runs the parts that have not begun and still fit into
#                              SECONDS (530); call it again until it says that none is left, also
#                              on another machine that RESULTS was copied to. Remove RESULTS/PART to
#                              have a part run once more.
#   gpu_day.sh table RESULTS   part, verdict, seconds, log; then all figures
#   gpu_day.sh parts           the parts, the seconds that each may take, and what each waits for
#   gpu_day.sh more            likewise those that begin when none of the parts is left
#
# A part keeps RESULTS/PART/log as it goes and is ended when its seconds are over; one that fails
# does not end the others. RESULTS.tar.gz holds all of it after every part. WORK (run/gpu-day) has
# the data set, PACK (build/gpu-day) what was carried. REHEARSE=1 runs the same on one emulated
# device and a tiny graph, on which times mean nothing; SLACK=4 gives each part 4 times its seconds.
# shellcheck disable=SC2153 # RESULTS and LIMIT are given to each part by run
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD pack=${PACK:-$PWD/build/gpu-day} work=${WORK:-$PWD/run/gpu-day}
python=${PYTHON:-python3} failed=

# Ordered by value: first what no GPU has run, then regression tests, then measurements. A part
# names the part that makes what it needs, and waits for it: otherwise a short part could fit into a
# call before the long one on which it depends.
parts=(
  'machine 10' 'library 15' 'drawn 60 library' 'data 75 library' 'epochs 110 data'
  'kernels 60 library' 'products 40 kernels' 'pyg 60 data' 'loader 90 epochs'
  'suite 100 library' 'heads 60 data' 'steps 40 library'
)
more=(
  'memcheck 110 library' 'modes 60 library' 'layers 45 library' 'kinds 95 library'
  'training 75 library' 'sweep 70 epochs' 'ranks 60 data' 'synccheck 40 library'
  'initcheck 40 library' 'racecheck 70 library'
)

main() {
  case ${1:-} in
    pack) pack ;;
    parts) printf '%s\n' "${parts[@]}" ;;
    more) printf '%s\n' "${more[@]}" ;;
    run) run "${2:?a folder for the results}" "${3:-530}" ;;
    table) table "${2:?the folder of the results}" ;;
    part) prepare && "part_${2//-/_}" ;; # for run only
    *) sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p;}' "$0" >&2 && exit 2 ;;
  esac
}

run() {
  local results=$1 end=$((SECONDS + $2)) left=() entry name seconds after begun code verdict
  local days=${#parts[@]} number=0
  unpack
  mkdir -p "$results"
  results=$(realpath "$results")
  table "$results" >"$results/table.txt"
  for entry in "${parts[@]}" "${more[@]}"; do
    number=$((number + 1))
    read -r name seconds after <<<"$entry"
    seconds=$((seconds * ${SLACK:-1}))
    case $name in # another machine lacks what these make
      library | data) [ -e "$work/begun/$name" ] || rm -rf "${results:?}/$name" ;;
    esac
    [ ! -e "$results/$name" ] || continue
    if [ $((SECONDS + seconds + 5)) -gt "$end" ] || [ ! -e "$results/$after" ] ||
      { [ "$number" -gt "$days" ] && [ ${#left[@]} -gt 0 ]; }; then
      left+=("$name")
      continue
    fi
    mkdir -p "$results/$name" "$work/begun/$name"
    begun=$SECONDS code=0
    RESULTS=$results LIMIT=$((seconds - 5))s timeout --kill-after=5 "$seconds" \
      bash "$root/profiling/lab/gpu_day.sh" part "$name" >"$results/$name/log" 2>&1 </dev/null ||
      code=$?
    case $code in
      0) verdict=passed ;;
      69) verdict='not run' ;;
      124 | 137) verdict='out of time' ;;
      2) verdict=$(grep -q '^panic: test timed out' "$results/$name/log" &&
        echo 'out of time' || echo 'failed, code 2') ;;
      *) verdict="failed, code $code" ;;
    esac
    echo "$verdict|$((SECONDS - begun))" >"$results/$name/verdict"
    echo "$name: $verdict, $((SECONDS - begun)) s" >&2
    table "$results" >"$results/table.txt"
    tar -C "$(dirname "$results")" -czf "$results.tar.gz" "$(basename "$results")"
  done
  cat "$results/table.txt"
  if [ ${#left[@]} -gt 0 ]; then
    echo "left, for another call: ${left[*]}"
  else
    echo "none is left"
  fi
}

table() {
  local entry name verdict took
  printf '%-10s %-18s %8s %7s %7s %7s  %s\n' part verdict seconds passes fails skips log
  for entry in "${parts[@]}" "${more[@]}"; do
    name=${entry%% *}
    [ -d "$1/$name" ] || continue
    IFS='|' read -r verdict took 2>/dev/null <"$1/$name/verdict" || verdict=interrupted took=
    printf '%-10s %-18s %8s %7s %7s %7s  %s\n' "$name" "$verdict" "$took" \
      "$(grep -c -- '--- PASS' "$1/$name/log")" "$(grep -c -- '--- FAIL' "$1/$name/log")" \
      "$(grep -c -- '--- SKIP' "$1/$name/log")" "$1/$name/log"
  done
  for entry in "${parts[@]}" "${more[@]}"; do
    name=${entry%% *}
    sed -n "s/^figure: /$name: /p" "$1/$name/log" 2>/dev/null || true
  done
}

# pack: packs the libraries that the program and the tests load, except those of the C and C++
# runtimes, which every machine has; oneDNN, which is loaded by name; and the reference layers
# computed by PyTorch.
pack() {
  HALOGNN_QUIET=1 source ./env.sh
  local golden=${HALOGNN_GOLDEN:-../shared/golden} onednn package bytes
  rm -rf "$pack" && mkdir -p "$pack/lib"
  make --silent --no-print-directory build
  if command -v "${NVCC:-nvcc}" >/dev/null 2>&1; then
    # a build of its own: the one in build/ may be for other devices
    rm -rf "$pack.cuda"
    make --silent --no-print-directory -C kernels BUILD="$pack.cuda" cuda
    cp "$pack.cuda/libhalognn_cuda.so" "$pack/"
  else
    echo "no nvcc here: the pack has no CUDA library, and parts can only run in a rehearsal" >&2
  fi
  cp bin/halognn "$pack/halognn.bin"
  for package in devices/compute/cuda runs/train model/nn step/parallel runs/infer \
    topology/sample; do
    go test -c -ldflags '-s -w' -o "$pack/${package##*/}.test" "./src/$package"
  done
  onednn=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p |
    sed -n 's|.*libdnnl\.so\.[23] .*=> ||p' | sed -n 1p)
  for file in "$pack"/halognn.bin "$pack"/*.test ${onednn:+"$onednn"}; do
    ldd "$file" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p'
  done | sort -u | grep -vE '/(ld-linux|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+))[-.]' |
    xargs -I{} cp -L {} "$pack/lib/"
  [ -z "$onednn" ] || cp -L "$onednn" "$pack/lib/"
  [ ! -d "$golden" ] || cp -RL "$golden" "$pack/golden"
  # PYTHON is like the machine's: records its version, and that of its torch
  mkdir -p "$pack/wheels"
  if [ -n "${WHEELS:-}" ]; then
    cp "$WHEELS"/torch_s*.whl "$pack/wheels/"
  else
    FORCE_ONLY_CPU=1 "$python" -m pip wheel --quiet --no-deps --no-build-isolation \
      -w "$pack/wheels" torch-scatter==2.1.2 torch-sparse==0.6.18 ||
      echo "not carried: torch-sparse, with which PyG samples"
  fi
  chmod -R u+w "$pack"
  tar -C "$pack" -cf - . | xz -T0 -6 >"$pack.tar.xz"
  bytes=$({ stat -c %s "$pack.tar.xz" && git ls-files -z | xargs -0 stat -c %s; } |
    awk '{ n += $1 } END { print n }')
  du -m "$pack.tar.xz"
  if [ "$bytes" -ge $((64 << 20)) ]; then
    echo "gpu_day.sh: the pack and the repository have $bytes bytes, not below 64 MiB" >&2
    exit 1
  fi
}

# unpack makes the pack's folder from the archive, unless the folder is from this archive already.
# The folder is complete or does not exist.
unpack() {
  local sum
  [ -e "$pack.tar.xz" ] || { echo "no $pack.tar.xz: gpu_day.sh pack" >&2; exit 69; }
  sum=$(cksum <"$pack.tar.xz")
  [ "$(cat "$pack/unpacked" 2>/dev/null)" != "$sum" ] || return 0
  rm -rf "$pack" "$pack.new" && mkdir "$pack.new"
  if command -v xz >/dev/null; then
    tar -C "$pack.new" -xJf "$pack.tar.xz"
  else
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
      "$pack.tar.xz" "$pack.new"
  fi
  echo "$sum" >"$pack.new/unpacked"
  mv "$pack.new" "$pack"
}

# prepare sets the paths of programs and libraries. The carried libraries are only for the program
# and the tests: Python has its own.
prepare() {
  HALOGNN_QUIET=1 source ./env.sh
  mkdir -p "$work"
  cublas=$(find_library cublas)
  compiler=$(find_nvcc)
  # the other tools are beside the compiler
  [ -z "$compiler" ] || PATH=$PATH:$(dirname "$compiler")
  cat >"$pack/with" <<EOF
#!/bin/sh
exec env LD_LIBRARY_PATH="$pack/lib:$cublas:\${LD_LIBRARY_PATH:-}" "\$@"
EOF
  # MPI's plugins are not carried, so ranks are goroutines
  cat >"$pack/halognn" <<EOF
#!/bin/sh
case " \$* " in
  *' --ranks-in-process '*) ;;
  ' train '*) set -- "\$@" --ranks-in-process 1 ;;
esac
exec "$pack/with" "$pack/halognn.bin" "\$@"
EOF
  chmod +x "$pack/with" "$pack/halognn"
  [ ! -d "$pack/golden" ] || export HALOGNN_GOLDEN=$pack/golden
  export HALOGNN=$pack/halognn HALOGNN_CUDA_LIB=$pack/libhalognn_cuda.so
  export HALOGNN_NCCL_LIB=${HALOGNN_NCCL_LIB:-$(find_library nccl)/libnccl.so.2}
  # on a graph as large as ogbn-products is published: 2.4 million vertices, 120 million edges
  scale=1 hidden=256 fanouts=15,10,5 batch=1024 steps=50 torch_device=cuda bench=100x count=1
  small=0.1 # scale of a preset, for timing kinds of rows
  epochs=3
  depth=$(nproc) # all cores prepare minibatches; the default is three
  if [ -n "${REHEARSE:-}" ]; then
    export HALOGNN_CUDA_LIB=$root/build/libhalognn_cuda_emulated.so
    export HALOGNN_EMULATED_DEVICES=1 HALOGNN_EMULATED_BYTES=$((256 << 20))
    scale=0.0003 hidden=8 fanouts=3,2,2 batch=32 steps=2 torch_device=cpu bench=1x
    small=0.001 epochs=2
  fi
}

# find_library NAME prints the folder of one of NVIDIA's libraries: where the loader looks, in a
# toolkit, or in Python's packages.
find_library() {
  { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n "s|.*=> \(.*\)/lib$1\.so\..*|\1|p"
    ls -d /usr/local/cuda*/lib64 2>/dev/null || true
    in_python lib
  } | while read -r dir; do
    if ls "$dir/lib$1".so.* >/dev/null 2>&1; then echo "$dir"; fi
  done | sed -n 1p
}

# find_nvcc prints the compiler: on the PATH, in a toolkit, or in Python's packages.
find_nvcc() {
  { command -v "${NVCC:-nvcc}" || true
    ls -d /usr/local/cuda*/bin/nvcc 2>/dev/null || true
    in_python bin/nvcc
  } | sed -n 1p
}

# in_python FOLDER prints that folder of each of Python's NVIDIA packages.
in_python() {
  "$python" -c 'import glob, site, sys
for d in site.getsitepackages(): print(*glob.glob(d + "/nvidia/*/" + sys.argv[1]), sep="\n")' \
    "$1" 2>/dev/null || true
}

on_gpu() { # true unless this is a rehearsal
  [ -z "${REHEARSE:-}" ] || { echo "not run: the device is emulated"; exit 69; }
}

tests() { # PACKAGE ARGUMENTS...: runs tests in the folder of the package, as go test does
  (cd "src/$1" && "$pack/with" "$pack/${1##*/}.test" ${REHEARSE:+-test.short} \
    -test.timeout "$LIMIT" "${@:2}")
}

part_machine() {
  lscpu | grep -E 'Model name|^CPU\(s\)' && free -g && df -h "$root"
  "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda)' || true
  "$python" -c 'import torch_geometric as g; print("PyG", g.__version__)' || true
  command -v compute-sanitizer || true
  "$compiler" --version || true
  [ -n "${REHEARSE:-}" ] || { nvidia-smi && nvidia-smi -q -d CLOCK,POWER; }
}

# The carried library needs a driver and cuBLAS. If it cannot run here, this part says why.
part_library() {
  if [ -n "${REHEARSE:-}" ]; then
    make --silent --no-print-directory build/libhalognn_cuda_emulated.so
  elif [ ! -e "$HALOGNN_CUDA_LIB" ]; then
    echo "the CUDA library was not carried: gpu_day.sh pack where nvcc is" && exit 1
  fi
  echo "cuBLAS: ${cublas:-none was found}"
  "$pack/with" ldd "$HALOGNN_CUDA_LIB" || true
  "$HALOGNN" version
  tests devices/compute/cuda -test.run 'TestQueuedLosses|TestTwoProducts' -test.v
}

part_suite() { tests devices/compute/cuda -test.v; }
part_training() {
  tests runs/train -test.v -test.run 'Offboard|CachesOnDevices|TenSteps|Transport'
}

# Queued steps: their digests, rows on the device, divergence, stops, pinned memory.
part_steps() {
  tests devices/compute/cuda -test.v -test.run 'QueuedLosses|Places|QueueDownload' ||
    failed="$failed losses"
  tests runs/train -test.v -test.run 'Queued|FirstStepIsSettled|Pinned' || failed="$failed training"
  ended
}

# Modes, and shuffles between ranks that share the device (NCCL refuses that); inference by columns.
part_modes() {
  tests step/parallel -test.v -test.run 'ModesAgreeOnGPUs|ShufflesBetweenGPUs' ||
    failed="$failed modes"
  tests runs/infer -test.v -test.run Offboard || failed="$failed inference"
  ended
}

# Every layer, also GATv2's, is compared with reference values and finite differences; and
# attention's kernels alone. Not the memory of layers, which is the same on every device.
part_layers() {
  tests model/nn -test.v -test.run '.*/.*/^cuda$|.*/^cuda$' \
    -test.skip 'OutOfMemory|GrowsWithSlack|AllocatesNothing' || failed="$failed layers"
  tests devices/compute/cuda -test.v -test.run 'TestBackend/(attention|heads|pairs)' ||
    failed="$failed attention"
  ended
}

part_kernels() {
  local code=0
  CUDA_TEST=$pack/cuda.test WITH=$pack/with BENCHTIME=$bench COUNT=$count \
    bash profiling/lab/bench_gpu.sh kernels | tee "$RESULTS/kernels/benchmarks" || code=$?
  # products are compared with the best product, rows read over the bus with a copy over it, and all
  # else with a copy on the device
  awk '/of-(copy|link)/ {
    beside = /of-gemm/ ? "of-gemm" : /of-link/ ? "of-link" : "of-copy"
    for (i = 1; i <= NF; i++) if ($i == beside)
      printf "figure: %s %s %s (goal %s)\n", $1, $(i - 1), $i, beside == "of-gemm" ? 0.9 : 0.7
  }
  /GB\/s-copied|BenchmarkLink/ {
    for (i = 1; i <= NF; i++) if ($i ~ /^GB/) printf "figure: %s %s %s\n", $1, $(i - 1), $i
  }' "$RESULTS/kernels/benchmarks"
  return "$code"
}

# Products in every precision, compared with PyTorch's.
part_products() {
  "$python" -c 'import torch' || { echo "not run: $python has no torch"; exit 69; }
  "$python" profiling/lab/gpu_products.py --torch-device "$torch_device" \
    "$RESULTS/kernels/benchmarks" | sed 's/^/figure: /'
}

# Only losses and times count, so there are no vertices for validation and test: otherwise a run
# would end with the inference of all vertices.
part_data() {
  "$HALOGNN" generate --kind sbm --preset products --split 8/0/0 --scale "$scale" --seed 1 \
    --force --out "$work/data"
  "$HALOGNN" partition --data "$work/data" --parts 1 --method contiguous --seed 1 --force \
    --out "$work/parts"
  "$HALOGNN" partition --data "$work/data" --parts 4 --method contiguous --seed 1 --force \
    --allow-imbalance --out "$work/parts4"
}

# train NAME SETTINGS...: trains the model on the parts FROM, by default the large graph's, and
# prints lines of the run's summary. ALIKE names a run whose losses it must repeat in every bit. A
# failed run does not end the part: see ended.
train() {
  local name=$1 settings=() setting from=${FROM:-$work/parts}
  for setting in "${@:2}"; do settings+=(--set "$setting"); done
  [ -d "$from" ] || { echo "not run: there is no data set"; exit 69; }
  rm -rf "${work:?}/$name"
  "$HALOGNN" train --config inputs/reference.yaml --set "data.parts=$from" \
    --set model.layers=3 --set "model.hidden=$hidden" --set "sample.fanouts=$fanouts" \
    --set "sample.batch=$batch" --set "pipeline.depth=$depth" --set "train.epochs=$epochs" \
    --set train.eval_every=0 --set train.eval_mode=sampled --set compute.device=cuda \
    --set "run.dir=$work/$name" "${settings[@]}" ${KERNELS:+--kernels} \
    ${RANKS:+--ranks-in-process "$RANKS"} || {
    failed="$failed $name"
    return 0
  }
  mkdir -p "$RESULTS/$name" && cp "$work/$name"/*.json "$RESULTS/$name/"
  "$python" - "$RESULTS" "$name" "${ALIKE:-}" <<'EOF' || failed="$failed $name"
import json, pathlib, sys
results, name, alike = pathlib.Path(sys.argv[1]), *sys.argv[2:]
summary = lambda run: json.loads((results / run / "summary.json").read_text())
s = summary(name)
print(f"figure: {name}: an epoch {s['epoch_seconds']:.3f} s, {s['steps_per_epoch']} steps of "
      f"{1e3 * s['epoch_seconds'] / s['steps_per_epoch']:.2f} ms, {s['wait_fraction']:.3f} of it "
      f"waiting for minibatches, loss {s['train_loss']:.6f}, digest {s['loss_digest']}, "
      f"memory pinned {s.get('pinned_growths', 0)} times among steps, "
      f"drawn on the {s.get('sampled_on', 'host')} "
      f"in {1e3 * s['phase_seconds'].get('sample', 0) / s['steps_per_epoch']:.2f} ms a step")
for d in s["device_rows"][:1]:
    print(f"figure: {name}: {d['resident_rows']} of {d['own_rows']} rows on the device, "
          f"the others: {d['reads']} ({d['why']})")
if (results / name / "kernels.json").exists():
    k = json.loads((results / name / "kernels.json").read_text())
    print(f"figure: {name}: idle {k['idle_share']:.4f} of a step (goal below 0.05); "
          f"roofline {k['floor_seconds'] / k['seconds']:.3f} of the steps' time")
if alike and summary(alike)["loss_digest"] != s["loss_digest"]:
    print(f"figure: {name}: its losses are NOT those of {alike}")
    sys.exit(1)
if alike:
    print(f"figure: {name}: its losses are those of {alike}, in every bit")
EOF
}

# ended ends a part of several runs: with 1 if one of them failed.
ended() { [ -z "$failed" ] || { echo "failed:$failed"; exit 1; }; }

# Minibatches drawn on the device are the reference's in every bit, and train as the host's.
part_drawn() {
  tests topology/sample -test.v -test.run OnADevice || failed="$failed bits"
  tests devices/compute/cuda -test.v -test.run 'Drawings|FactorsOfTF32' || failed="$failed order"
  tests runs/train -test.v -test.run 'DrawnOnDevicesTrainAlike' || failed="$failed training"
  ended
}

# Epochs of minibatches drawn by the host and on the device, by both samplers and in each precision.
# The device's must have the losses of the host's.
part_epochs() {
  local all=compute.gpu_rows=1 drawn=sample.on=device precision
  train rows-1 "$all"
  ALIKE=rows-1 train drawn "$all" "$drawn"
  KERNELS=1 ALIKE=rows-1 train kernels-1 "$all" "$drawn"
  for precision in bf16 tf32; do
    train "$precision" "$all" "compute.precision=$precision"
    KERNELS=1 ALIKE=$precision train "kernels-$precision" "$all" "$drawn" \
      "compute.precision=$precision"
  done
  train labor "$all" sample.kind=labor
  ALIKE=labor train drawn-labor "$all" "$drawn" sample.kind=labor
  ALIKE=rows-1 train drawn-0.2 compute.gpu_rows=0.2 "$drawn"
  ended
}

# A sweep over the share of rows on the device (SALIENT++, Figure 6). The other rows are copied by
# the host or read in place. The middle and the end come first.
part_sweep() {
  local rows reads
  for rows in 0.5 0 0.2; do
    for reads in copy mapped; do
      ALIKE=rows-1 train "rows-$rows-$reads" "compute.gpu_rows=$rows" "compute.gpu_reads=$reads"
    done
  done
  ended
}

# The ranks of one process share the device. NCCL refuses that, so it is tested with one rank, in
# the tests of links: a rank that trains alone adds no gradients.
part_ranks() {
  tests devices/compute/cuda -test.v -test.run TestLinks | tee "$RESULTS/ranks/links" ||
    failed="$failed links"
  echo "figure: links of one rank, by NCCL:" \
    "$(grep -c -- '--- PASS: TestLinks/ranks=1/' "$RESULTS/ranks/links") of 4 cases passed"
  RANKS=2 train ranks-2 "data.parts=$work/parts4" compute.gradients=staged
  RANKS=2 ALIKE=ranks-2 train ranks-2-mpi "data.parts=$work/parts4" compute.gradients=mpi
  RANKS=4 train ranks-4 "data.parts=$work/parts4" compute.gradients=staged
  RANKS=1 train ranks-1 "data.parts=$work/parts4" compute.gradients=auto
  ended
}

# Rows of 8 bits, sparse rows, and vertex types, whose rows the host sends.
part_kinds() {
  kind int8 "$HALOGNN" generate --preset products --feature-type int8 --scale "$small" --seed 1 \
    --split 8/0/0 --force --out "$work/data-int8"
  KERNELS=1 FROM=$work/parts-int8 train int8
  kind sparse sparse_data
  KERNELS=1 FROM=$work/parts-sparse train sparse cache.policy=none
  typed
  KERNELS=1 FROM=$work/parts-typed train typed-gatv2 model.kind=gatv2 model.heads=4 \
    model.layers=2 "sample.fanouts=${fanouts%,*}"
  ended
}

# typed makes the parts with vertex types, unless they are there.
typed() {
  [ -d "$work/parts-typed" ] || kind typed "$HALOGNN" generate --kind mag --preset mag \
    --scale "$small" --seed 1 --split 80/0/0 --force --out "$work/data-typed"
}

# Attention on the large graph; and relations.
part_heads() {
  local of
  for of in gat gatv2; do
    KERNELS=1 train "$of" compute.gpu_rows=1 "model.kind=$of" model.heads=4 train.epochs=2
  done
  typed
  KERNELS=1 FROM=$work/parts-typed train rgcn model.kind=rgcn model.layers=2 \
    "sample.fanouts=${fanouts%,*}" train.epochs=2
  ended
}

# kind NAME COMMAND...: makes a data set and puts it into one part. Types without features get
# degrees as features.
kind() {
  local degrees=()
  [ "$1" != typed ] || degrees=(--features degree)
  "${@:2}" && "$HALOGNN" partition --data "$work/data-$1" --parts 1 --method contiguous --seed 1 \
    "${degrees[@]}" --force --out "$work/parts-$1"
}

# sparse_data makes a graph whose rows have 32 of 2,048 words.
sparse_data() {
  mkdir -p "$work/words"
  "$python" - "$work/words/words.npz" "$small" <<'EOF'
import sys
import numpy as np
r, n = np.random.default_rng(1), int(2e6 * float(sys.argv[2]))
start = lambda each: np.arange(n + 1) * each
np.savez(sys.argv[1], labels=r.integers(16, size=n), adj_shape=(n, n), attr_shape=(n, 2048),
         adj_data=np.ones(10 * n, np.float32), adj_indices=r.integers(n, size=10 * n),
         adj_indptr=start(10), attr_data=np.ones(32 * n, np.float32), attr_indptr=start(32),
         attr_indices=(r.integers(64, size=(n, 32)) + np.arange(32) * 64).ravel())
EOF
  "$HALOGNN" import --format npz --in "$work/words/words.npz" --undirected --feature-type sparse \
    --split 20/0/0 --seed 1 --force --out "$work/data-sparse"
}

# PyG and plain PyTorch on halognn's minibatches.
part_pyg() {
  local code=0
  "$python" -c 'import numpy' || exit 69
  [ -d "$work/parts" ] || { echo "not run: there is no data set"; exit 69; }
  rm -rf "${work:?}/pyg"
  "$python" profiling/lab/gpu_vs_pyg.py --halognn "$HALOGNN" --work "$work/pyg" --data "$work/data" \
    --parts "$work/parts" --hidden "$hidden" --fanouts "$fanouts" --batch "$batch" --epochs 3 \
    --steps "$steps" --features device --torch-device "$torch_device" \
    --precisions float32,tf32,bf16 || code=$?
  [ -e "$work/pyg/comparison.json" ] || exit "$code"
  cp "$work/pyg/comparison.json" "$RESULTS/pyg.json"
  "$python" - "$work/pyg/comparison.json" <<'EOF'
import json, sys
ours, *others = json.load(open(sys.argv[1]))
for o in others:
    times = o["epoch_seconds"] / ours["epoch_seconds"]
    print(f"figure: {o['program']}: an epoch takes {times:.2f} times halognn's (goal 3), "
          f"{o['step_ms']:.2f} ms a step, halognn {ours['step_ms']:.2f}; losses apart by "
          f"{o['first_loss']} at first, {o['all_losses']} at most")
if not others:
    sys.exit(69)
EOF
  return "$code"
}

# PyG that samples by itself, with torch-sparse from the pack. All but two cores sample, as in
# halognn.
part_loader() {
  local site=$work/site cores
  cores=$(nproc)
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
  "$python" -c 'import torch_geometric' || exit 69
  if ! "$python" -c 'import torch_sparse'; then
    ls "$pack"/wheels/torch_sparse-* || { echo "not run: torch-sparse was not carried"; exit 69; }
    "$python" -m pip install --no-index --no-deps --target "$site" "$pack"/wheels/*.whl
    "$python" -c 'import torch_sparse'
  fi
  "$python" profiling/lab/peers/pyg_train.py "$work/data" --device "$torch_device" --epochs 2 \
    --hidden "$hidden" --fanouts "$fanouts" --batch "$batch" --threads "$cores" \
    --workers $((cores > 2 ? cores - 2 : 1)) | tee "$RESULTS/loader/epochs"
  "$python" - "$RESULTS" <<'EOF'
import json, pathlib, statistics, sys
results = pathlib.Path(sys.argv[1])
lines = map(str.split, (results / "loader/epochs").read_text().splitlines())
theirs = statistics.median(float(w[2]) for w in lines if w[0] == "epoch")
ours = json.loads((results / "rows-1/summary.json").read_text())["epoch_seconds"]
print(f"figure: PyG with NeighborLoader: an epoch {theirs:.3f} s, {theirs / ours:.2f} times "
      f"halognn's {ours:.3f} (goal 3)")
EOF
}

sanitize() {
  on_gpu
  CUDA_TEST=$pack/cuda.test SAMPLE_TEST=$pack/sample.test WITH=$pack/with \
    bash profiling/lab/sanitize_gpu.sh "$@"
}
part_memcheck() { sanitize 'memcheck --leak-check full --report-api-errors no'; }
part_synccheck() { sanitize synccheck; }
part_initcheck() { sanitize initcheck; }
part_racecheck() { sanitize racecheck; }

main "$@"
