#!/usr/bin/env bash
# files.sh [RANKS]: what a job asks of the file system: opens, stats, renames, and bytes, counted by
# strace for a training of 2 epochs and one of 6. The difference is the cost of 4 epochs.
set -euo pipefail
cd "$(dirname "$0")/.."
ranks=${1:-8}
HALOGNN_QUIET=1 source ./env.sh
command -v strace >/dev/null || { echo "strace is not installed" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bin/halognn generate --kind sbm --vertices 40000 --degree 16 --features 64 --classes 8 --seed 1 \
  --out "$dir/data" >/dev/null
bin/halognn partition --data "$dir/data" --parts "$ranks" --method ldg --seed 1 --out "$dir/parts" >/dev/null
for epochs in 2 6; do
  cat >"$dir/c$epochs.yaml" <<END
data: {parts: $dir/parts}
model: {layers: 2, hidden: 64}
sample: {fanouts: [10, 5], batch: 64}
train: {epochs: $epochs}
run: {dir: $dir/run$epochs, ranks_per_node: 1}
END
  "$HALOGNN_MPIRUN" -np "$ranks" strace -ff -qq -y -o "$dir/$epochs" \
    -e trace=%file,read,pread64,write,pwrite64,fsync,fdatasync,getdents64 \
    bin/halognn train --quiet --config "$dir/c$epochs.yaml" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
done
python3 - "$dir" <<'END'
import collections, glob, json, re, sys
dir = sys.argv[1]
for epochs in (2, 6):
    calls, read, written = collections.Counter(), 0, 0
    for path in glob.glob(f"{dir}/{epochs}.*"):
        for line in open(path, errors="replace"):
            found = re.match(r"(\w+)\((.*)= (-?\d+)", line)
            if not found or dir + "/" not in found[2]:
                continue
            call, n = found[1], int(found[3])
            if call in ("read", "pread64"):
                read += max(n, 0)
            elif call in ("write", "pwrite64"):
                written += max(n, 0)
            else:
                calls[call] += 1
    run = json.load(open(f"{dir}/run{epochs}/summary.json"))
    steps = run["epochs"] * run["steps_per_epoch"]
    print(f"{run['ranks']} ranks, {epochs} epochs, {steps} steps: {sum(calls.values())} calls of metadata "
          f"({', '.join(f'{n} {c}' for c, n in calls.most_common())}); "
          f"{read / 1e6:.2f} MB read, {written / 1e6:.2f} MB written")
END
