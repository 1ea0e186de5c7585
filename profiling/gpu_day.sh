#!/usr/bin/env bash
# gpu_day.sh: everything that a GPU has to show, in 25 minutes on one, by commands of 9 minutes at
# most, the most valuable first, so that a machine that is there for half an hour, and can fetch
# nothing, is enough.
#
#   gpu_day.sh pack            where Go, the libraries and (better) nvcc are: builds the program,
#                              the tests and the CUDA library for sm_80, sm_90 and later, and packs
#                              them with MPI, OpenBLAS, oneDNN, METIS, hwloc and what these need
#                              into build/gpu-day.tar.xz, below 64 MiB. Carry that and the
#                              repository.
#   gpu_day.sh run RESULTS [SECONDS]
#                              on the machine: runs the parts that have not begun and still fit into
#                              SECONDS (530); call it again until it says that none is left
#   gpu_day.sh table RESULTS   part, verdict, seconds, log; then all figures
#   gpu_day.sh parts           the parts and the seconds that each may take
#
# A part keeps RESULTS/PART/log as it goes and is ended when its seconds are over; one that fails
# does not end the others. RESULTS.tar.gz holds all of it after every part. WORK (run/gpu-day) has
# the data set. REHEARSE=1 runs the same on an emulated device and a tiny graph, on which times mean
# nothing; SLACK=4 gives each part 4 times its seconds.
# shellcheck disable=SC2153 # RESULTS and LIMIT are given to each part by run
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD pack=$PWD/build/gpu-day work=${WORK:-$PWD/run/gpu-day} python=${PYTHON:-python3}

# By value: what must work comes before what is measured, and the data set before its users. All
# others need the library, whose sources a slow host compiles in minutes.
parts=(
  'machine 20' 'library 240' 'suite 140' 'training 90' 'layers 30' 'kernels 100'
  'data 160' 'resident 90' 'pyg 160' 'memcheck 130' 'sweep 130' 'ranks 90'
  'bf16 40' 'synccheck 40' 'initcheck 40' 'racecheck 20' 'pyg-host 90'
)

main() {
  case ${1:-} in
    pack) pack ;;
    parts) printf '%s\n' "${parts[@]}" ;;
    run) run "${2:?a folder for the results}" "${3:-530}" ;;
    table) table "${2:?the folder of the results}" ;;
    part) prepare && "part_${2//-/_}" ;; # of run alone
    *) sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p;}' "$0" >&2 && exit 2 ;;
  esac
}

run() {
  local results=$1 end=$((SECONDS + $2)) left=() entry name seconds begun code verdict
  mkdir -p "$results"
  results=$(realpath "$results")
  for entry in "${parts[@]}"; do
    read -r name seconds <<<"$entry"
    seconds=$((seconds * ${SLACK:-1}))
    [ ! -e "$results/$name" ] || continue
    if [ $((SECONDS + seconds + 5)) -gt "$end" ]; then
      left+=("$name")
      continue
    fi
    mkdir "$results/$name"
    begun=$SECONDS code=0
    RESULTS=$results LIMIT=$((seconds - 5))s timeout --kill-after=5 "$seconds" "$0" part "$name" \
      >"$results/$name/log" 2>&1 </dev/null || code=$?
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
  local entry name seconds verdict took
  printf '%-10s %-18s %8s %7s %7s  %s\n' part verdict seconds passes fails log
  for entry in "${parts[@]}"; do
    read -r name seconds <<<"$entry"
    [ -d "$1/$name" ] || continue
    IFS='|' read -r verdict took 2>/dev/null <"$1/$name/verdict" || verdict=interrupted took=
    printf '%-10s %-18s %8s %7s %7s  %s\n' "$name" "$verdict" "$took" \
      "$(grep -c -- '--- PASS' "$1/$name/log")" "$(grep -c -- '--- FAIL' "$1/$name/log")" \
      "$1/$name/log"
  done
  for entry in "${parts[@]}"; do
    name=${entry% *}
    sed -n "s/^figure: /$name: /p" "$1/$name/log" 2>/dev/null || true
  done
}

# pack: the libraries that the program and the tests load, but for those of the C and C++ runtimes,
# which every machine has; oneDNN, which is loaded by name; and the layers computed by PyTorch.
pack() {
  HALOGNN_QUIET=1 source ./env.sh
  local golden=${HALOGNN_GOLDEN:-../shared/golden} onednn package
  rm -rf "$pack" && mkdir -p "$pack/lib"
  make --silent --no-print-directory build
  if command -v "${NVCC:-nvcc}" >/dev/null 2>&1; then
    make --silent --no-print-directory cuda && cp build/libhalognn_cuda.so "$pack/"
  else
    echo "no nvcc here: the CUDA library is built on the machine"
  fi
  cp bin/halognn "$pack/halognn.bin"
  for package in compute/cuda train nn; do
    go test -c -ldflags '-s -w' -o "$pack/${package##*/}.test" "./src/$package"
  done
  onednn=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p |
    sed -n 's|.*libdnnl\.so\.[23] .*=> ||p' | sed -n 1p)
  for file in "$pack"/halognn.bin "$pack"/*.test ${onednn:+"$onednn"}; do
    ldd "$file" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p'
  done | sort -u | grep -vE '/(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))[-.]' |
    xargs -I{} cp -L {} "$pack/lib/"
  [ -z "$onednn" ] || cp -L "$onednn" "$pack/lib/"
  [ ! -d "$golden" ] || cp -RL "$golden" "$pack/golden"
  chmod -R u+w "$pack"
  tar -C build -cf - gpu-day | xz -T0 -6 >build/gpu-day.tar.xz
  du -m build/gpu-day.tar.xz
  if [ "$(stat -c %s build/gpu-day.tar.xz)" -ge $((64 << 20)) ]; then
    echo "gpu_day.sh: the pack is not below 64 MiB" >&2
    exit 1
  fi
}

# prepare unpacks, and sets where programs and libraries are found. The carried libraries are for
# the program and the tests alone: Python has its own.
prepare() {
  HALOGNN_QUIET=1 source ./env.sh
  mkdir -p "$work"
  if [ ! -d "$pack" ]; then
    [ -e build/gpu-day.tar.xz ] || { echo "no build/gpu-day.tar.xz: gpu_day.sh pack" >&2; exit 69; }
    tar -C build -xJf build/gpu-day.tar.xz
  fi
  cublas=$(find_library cublas)
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
  # of a graph as large as ogbn-products, as published: 2.4 million vertices, 120 million edges
  scale=1 hidden=256 fanouts=15,10,5 batch=1024 steps=100 torch_device=cuda bench=100x count=1
  if [ -n "${REHEARSE:-}" ]; then
    export HALOGNN_CUDA_LIB=$root/build/libhalognn_cuda_emulated.so HALOGNN_SHORT=1
    scale=0.0003 hidden=8 fanouts=3,2,2 batch=32 steps=2 torch_device=cpu bench=1x
  fi
}

# find_library NAME prints the folder of a library of NVIDIA's: where the loader looks, of a
# toolkit, or of Python's.
find_library() {
  { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n "s|.*=> \(.*\)/lib$1\.so\..*|\1|p"
    ls -d /usr/local/cuda*/lib64 2>/dev/null || true
    in_python lib
  } | while read -r dir; do
    if ls "$dir/lib$1".so.* >/dev/null 2>&1; then echo "$dir"; fi
  done | sed -n 1p
}

# find_nvcc prints the compiler: on the PATH, of a toolkit, or of Python's packages.
find_nvcc() {
  { command -v "${NVCC:-nvcc}" || true
    ls -d /usr/local/cuda*/bin/nvcc 2>/dev/null || true
    in_python bin/nvcc
  } | sed -n 1p
}

# in_python FOLDER prints that folder of each NVIDIA package that Python has.
in_python() {
  "$python" -c 'import glob, site, sys
for d in site.getsitepackages(): print(*glob.glob(d + "/nvidia/*/" + sys.argv[1]), sep="\n")' \
    "$1" 2>/dev/null || true
}

on_gpu() { # unless this is a rehearsal
  [ -z "${REHEARSE:-}" ] || { echo "not run: the device is emulated"; exit 69; }
}

tests() { # PACKAGE ARGUMENTS...: in the folder of the package, as go test does
  (cd "src/$1" && "$pack/with" "$pack/${1##*/}.test" -test.timeout "$LIMIT" "${@:2}")
}

part_machine() {
  lscpu | grep -E 'Model name|^CPU\(s\)' && free -g && df -h "$root"
  "$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda)' || true
  "$python" -c 'import torch_geometric as g; print("PyG", g.__version__)' || true
  command -v compute-sanitizer || true
  "$(find_nvcc)" --version || true
  [ -n "${REHEARSE:-}" ] || { nvidia-smi && nvidia-smi -q -d CLOCK,POWER; }
}

# The carried library, if what it needs is here, or one that is built now.
part_library() {
  if [ -n "${REHEARSE:-}" ]; then
    make --silent --no-print-directory build/libhalognn_cuda_emulated.so
  elif [ ! -e "$HALOGNN_CUDA_LIB" ] || "$pack/with" ldd "$HALOGNN_CUDA_LIB" | grep 'not found'; then
    local compiler
    compiler=$(find_nvcc)
    [ -n "$compiler" ] || { echo "no nvcc here (NVCC names one)"; exit 1; }
    compiler="$compiler $(in_python include | sed -n 's/^./-I&/p' | tr '\n' ' ')"
    mkdir -p "$work/link" # where there is only libcublas.so.N
    ln -sf "$cublas"/libcublas.so.[0-9]* "$work/link/"
    (cd "$work/link" && set -- libcublas.so.[0-9]* && ln -sf "$1" libcublas.so)
    rm -rf build/cuda build/libhalognn_cuda.so
    make -C kernels -j "$(nproc)" BUILD="$root/build" NVCC="$compiler" CUDA_ARCH=-arch=native \
      NVLDFLAGS="-L$work/link $(in_python lib | sed -n 's/^./-L&/p' | tr '\n' ' ')" cuda
    cp build/libhalognn_cuda.so "$HALOGNN_CUDA_LIB"
  fi
  "$pack/with" ldd "$HALOGNN_CUDA_LIB"
  tests compute/cuda -test.run 'TestAnyThread' -test.v
}

part_suite() { tests compute/cuda -test.v; }
part_training() { tests train -test.v -test.run 'Offboard|TenSteps|Transport'; }
part_layers() { tests nn -test.v -test.run '.*/.*/^cuda$|.*/^cuda$'; }

part_kernels() {
  CUDA_TEST=$pack/cuda.test WITH=$pack/with BENCHTIME=$bench COUNT=$count \
    profiling/bench_gpu.sh kernels | tee "$work/kernels.txt"
  # a product beside the best one, anything else beside a copy
  awk '/of-copy/ {
    goal = /of-gemm/ ? 0.9 : 0.7
    for (i = 1; i <= NF; i++) if ($i == (/of-gemm/ ? "of-gemm" : "of-copy"))
      printf "figure: %s %s %s (goal %s)\n", $1, $(i - 1), $i, goal
  }' "$work/kernels.txt"
}

part_data() {
  "$HALOGNN" generate --kind sbm --preset products --scale "$scale" --seed 1 --force \
    --out "$work/data"
  "$HALOGNN" partition --data "$work/data" --parts 1 --method contiguous --seed 1 --force \
    --out "$work/parts"
  "$HALOGNN" partition --data "$work/data" --parts 4 --method contiguous --seed 1 --force \
    --allow-imbalance --out "$work/parts4"
}

# train NAME SETTINGS...: trains the model and prints what the run's summary says.
train() {
  local name=$1 settings=() setting
  for setting in "${@:2}"; do settings+=(--set "$setting"); done
  [ -d "$work/parts" ] || { echo "not run: there is no data set"; exit 69; }
  "$HALOGNN" train --config inputs/reference.yaml --set "data.parts=$work/parts" \
    --set model.layers=3 --set "model.hidden=$hidden" --set "sample.fanouts=$fanouts" \
    --set "sample.batch=$batch" --set train.epochs=3 --set train.eval_every=0 \
    --set train.eval_mode=sampled --set compute.device=cuda --set "run.dir=$work/$name" \
    "${settings[@]}" ${KERNELS:+--kernels} ${RANKS:+--ranks-in-process "$RANKS"}
  mkdir -p "$RESULTS/$name" && cp "$work/$name"/*.json "$RESULTS/$name/"
  "$python" - "$work/$name" "$name" <<'EOF'
import json, pathlib, sys
run = pathlib.Path(sys.argv[1])
s = json.loads((run / "summary.json").read_text())
print(f"figure: {sys.argv[2]}: an epoch {s['epoch_seconds']:.3f} s, {s['steps_per_epoch']} steps, "
      f"loss {s['train_loss']:.6f}, digest {s['loss_digest']}")
if (run / "kernels.json").exists():
    k = json.loads((run / "kernels.json").read_text())
    print(f"figure: {sys.argv[2]}: idle {k['idle_share']:.4f} of a step (goal below 0.05); "
          f"roofline {k['floor_seconds'] / k['seconds']:.3f} of the steps' time")
EOF
}

part_resident() {
  train rows-1 compute.gpu_rows=1
  KERNELS=1 train kernels-1 compute.gpu_rows=1
}

# A sweep of the share of rows on the device (SALIENT++, Figure 6), the others copied by the host or
# read in place.
part_sweep() {
  local rows reads
  for rows in 0 0.05 0.1 0.2 0.5; do
    for reads in copy mapped; do
      train "rows-$rows-$reads" "compute.gpu_rows=$rows" "compute.gpu_reads=$reads"
    done
  done
}

# Ranks of one process share the device, so NCCL, which refuses two ranks on one, runs with one.
part_ranks() {
  RANKS=1 train ranks-1 "data.parts=$work/parts4" compute.gradients=auto
  RANKS=2 train ranks-2 "data.parts=$work/parts4" compute.gradients=staged
  RANKS=4 train ranks-4 "data.parts=$work/parts4" compute.gradients=staged
  tests compute/cuda -test.v -test.run 'TestLinks|NCCL'
}

part_bf16() { KERNELS=1 train bf16 compute.gpu_rows=1 compute.precision=bf16; }

compared() { # NAME FEATURES
  "$python" -c 'import numpy' || exit 69
  [ -d "$work/parts" ] || { echo "not run: there is no data set"; exit 69; }
  rm -rf "${work:?}/$1"
  "$python" profiling/gpu_vs_pyg.py --halognn "$HALOGNN" --work "$work/$1" --data "$work/data" \
    --parts "$work/parts" --hidden "$hidden" --fanouts "$fanouts" --batch "$batch" --epochs 3 \
    --steps "$steps" --features "$2" --torch-device "$torch_device" | tee "$work/$1.txt"
  cp "$work/$1/comparison.json" "$RESULTS/$1.json"
  "$python" - "$work/$1/comparison.json" <<'EOF'
import json, sys
ours, *others = json.load(open(sys.argv[1]))
for o in others:
    times = o["epoch_seconds"] / ours["epoch_seconds"]
    print(f"figure: {o['program']}: an epoch takes {times:.2f} times halognn's (goal 3), "
          f"{o['step_ms']:.2f} ms a step, halognn {ours['step_ms']:.2f}")
EOF
}
part_pyg() { compared pyg device; }
part_pyg_host() { compared pyg-host host; }

sanitize() {
  on_gpu
  CUDA_TEST=$pack/cuda.test WITH=$pack/with profiling/sanitize_gpu.sh "$@"
}
part_memcheck() { sanitize 'memcheck --leak-check full'; }
part_synccheck() { sanitize synccheck; }
part_initcheck() { sanitize initcheck; }
part_racecheck() { sanitize racecheck; }

main "$@"
