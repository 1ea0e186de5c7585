#!/usr/bin/env bash
# pmpi.sh PROGRAM: checks that a tool of MPI's profiling interface sees the calls of a training on
# two ranks under the MPI that env.sh found: for each step the ids of rows, the rows, and the
# gradients' sum.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(readlink -f "${1:?usage: pmpi.sh PROGRAM}")
HALOGNN_QUIET=1 source ./env.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${HALOGNN_MPICC:-mpicc}" -shared -fPIC -o "$dir/calls.so" tests/pmpi/calls.c
"$program" generate --kind sbm --vertices 1200 --degree 8 --features 8 --classes 4 --seed 1 --out "$dir/data" >/dev/null
"$program" partition --data "$dir/data" --parts 2 --method ldg --seed 1 --out "$dir/parts" >/dev/null
cat >"$dir/c.yaml" <<END
data: {parts: $dir/parts}
model: {layers: 2, hidden: 8}
sample: {fanouts: [4, 2], batch: 64}
train: {epochs: 2, allreduce: mpi}
run: {dir: $dir/run, ranks_per_node: 1}
cache: {policy: none}
END
cat >"$dir/rank.sh" <<END
#!/bin/sh
LD_PRELOAD=$dir/calls.so exec "\$@"
END
chmod +x "$dir/rank.sh"
export CALLS=$dir/calls
"$HALOGNN_MPIRUN" -np 2 "$dir/rank.sh" "$program" train --quiet --config "$dir/c.yaml" >"$dir/log" 2>&1 || {
  cat "$dir/log"
  exit 1
}
python3 - "$dir/calls" "$dir/run/summary.json" <<'END'
import json, sys
calls = {name: int(n) for name, n in map(str.split, open(sys.argv[1]))}
run = json.load(open(sys.argv[2]))
steps = run["epochs"] * run["steps_per_epoch"]
least = {"Init_thread": 1, "Ialltoallv": steps, "Isend": 1, "Iallreduce": steps, "Testsome": steps}
print("MPI calls of rank 0:", ", ".join(f"{n} {calls[n]} (at least {least[n]})" for n in least))
sys.exit(any(calls[n] < least[n] for n in least) or calls["Init_thread"] != 1)
END
