#!/usr/bin/env python3
"""Trains on one halognn DATASET with halognn and its peers in turn, and prints ratios.

    profiling/lab/peers/setup.sh build/peers                    # a venv with DGL and PyG, once
    profiling/lab/peers/compare.py DATASET CASE... [--out DIR] [--rounds 5] [--peers build/peers]
                                             [--half DATASET]

A case compares one halognn job with its peers:

    one        one process, both cores: DGL (NeighborSampler, GraphBolt, GraphBolt by
               LABOR), each in float32 and bf16, and PyG
    gcn, gin, gat, gatv2   the same with other models, without PyG
    inference  one process, all neighbours, all vertices layer by layer: halognn and DGL
    four       4 ranks and DistDGL on 4 network hosts, with links as fast as the machine
    1gbit      the same with links of 1 Gbit/s, width 64, look-ahead; also with sums made by the owners
               of rows; and with sums on the float16 rows of --half
    200mbit    the same with links of 200 Mbit/s
    links      halognn alone, with LABOR whose random numbers last 64 steps, on links as fast as
               the machine, of 1 Gbit/s and of 200 Mbit/s
    pairs      one process that predicts links, on a DATASET with that task; 2 layers, 4 negatives
               a link: halognn with negatives for each link and shared ones, GraphBolt, and PyG
    rgcn, rsage   one process on a graph of several relations, 2 layers, width 64: halognn, and DGL by
               GraphBolt and by NeighborSampler. Types without features get 16 columns
    rgcn-1gbit, rsage-1gbit   the same models of 4 ranks on links of 1 Gbit/s, look-ahead, also
               with sums made by the owners of rows, these with LABOR whose random numbers last 64
               steps, and these with a static cache of half a rank's share of the rows and a
               compute thread a rank, as DistDGL has; and DistDGL, with its own sampler and with
               GraphBolt. Types without features learn rows of 64 columns
    sampler    the sampler alone, on one thread, without features or training

All contestants run in every round, so that a busy minute of the machine does not affect only one.
An epoch's time is the median over all epochs of a run but the first; a ratio is taken within a
round. Processor seconds an epoch, of all processes, are a mean over the same epochs and hardly
depend on other work of the machine; MB an epoch are what the network hosts sent. Prints medians
over the rounds, with the smallest and the largest ratio. In the first round a peer runs with each
of its settings (number of workers), then with the fastest of them. bf16 is left out if the
processor cannot multiply it. Peers allocate with tcmalloc, as PyTorch's guide for CPUs advises:
glibc returns every large tensor to the kernel, which makes them up to twice as slow. DistDGL does
not use it, as it gains nothing.
"""

import argparse
import bisect
import glob
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FANOUTS = "15,10,5"
BF16 = "compute.precision=bf16"
LABOR = "sample.kind=labor"
SUMS = "exchange.sums=on"
LASTING = [LABOR, "sample.dependency=64"]
AHEAD = ["cache.policy=lookahead", "cache.alpha=0.2"]
SLOW = ["exchange.window=750000", "pipeline.depth=4"]  # so that gradients do not wait behind rows
ALLOCATOR = next((path for folder in ("/usr/lib*", "/usr/lib*/*", "/usr/local/lib*")
                  for path in glob.iglob(f"{folder}/libtcmalloc_minimal.so.4")), "")
ALLOCATED = ("Peers other than DistDGL allocate by tcmalloc." if ALLOCATOR else
             "libtcmalloc_minimal.so.4 was not found (setup.sh installs it): peers allocate by glibc, "
             "and are up to twice as slow as they may be.")
MODELS = {"one": "sage", "gcn": "gcn", "gin": "gin", "gat": "gat", "gatv2": "gatv2"}
KINDS = {"rgcn": "rgcn", "rsage": "sage"}
TYPED = ["model.layers=2", "model.project=64", "sample.fanouts=10,10"]
TICK = os.sysconf("SC_CLK_TCK")
HAS_BF16 = any(f in open("/proc/cpuinfo").read() for f in ("avx512_bf16", "amx_bf16"))


def hosts(rate):
    """The beginning of a command on 4 hosts, as in distdgl.sh: -c gives each the same share of a
    busy machine, whatever sessions its program makes."""
    return [HERE.parent / "hosts.sh", "-n", "4", "-c", os.cpu_count(), "-r", rate, "--"]


def fail(text):
    sys.exit(f"compare.py: {text}")


class Contestant:
    """One way to train: run() returns (seconds an epoch, loss of the last epoch, processor seconds
    an epoch, bytes that network hosts sent an epoch), NaN if a process does not show when epochs
    end. epochs is the file with a line that has "epoch" for each ended epoch; None: the log; "":
    there is none."""

    def __init__(self, name, command, read, env=None, epochs=""):
        self.name, self.command, self.read, self.env = name, command, read, env or {}
        # the words after it are a setting of the peer
        self.peer, self.epochs = name.split(",")[0], epochs

    def run(self, log):
        file, ends, seen = log if self.epochs is None else self.epochs, {}, [(0, 0, 0)]
        mark = f"{log} {time.time()}"
        pathlib.Path(file or log).unlink(missing_ok=True)
        with open(log, "w") as out:
            process = subprocess.Popen(self.command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
                                       env={**os.environ, **self.env, "COMPARED": mark})
            while file and process.poll() is None:
                if time.time() - seen[-1][0] > 0.5:
                    seen.append((time.time(), *map(max, seen[-1][1:], used(f"COMPARED={mark}"))))
                if os.path.exists(file):
                    for line in open(file):
                        if line.startswith('{"kind":"epoch"') and line.endswith("\n"):
                            e = json.loads(line)
                            ends[e["epoch"]] = e["time"]
                        elif line.startswith("epoch ") and line.endswith("\n"):
                            ends.setdefault(int(line.split()[1]), time.time())
                time.sleep(0.02)
            code = process.wait()
        if code:
            print(f"{self.name}: exit code {code}; see {log}", file=sys.stderr)
            return None
        last, got = max(ends, default=0), self.read(log)
        if last < 2:
            return got and (*got, math.nan, math.nan)
        return got and (*got, *((y - x) / (last - 1) for x, y in zip(at(seen, ends[1]),
                                                                    at(seen, ends[last]))))


def at(seen, moment):
    """The usage up to a moment, interpolated between the two samples around it."""
    i = min(max(1, bisect.bisect(seen, (moment,))), len(seen) - 1)
    (t, *x), (u, *y) = seen[i - 1], seen[i]
    share = min(1, (moment - t) / (u - t))
    return [p + (q - p) * share for p, q in zip(x, y)]


def used(mark):
    """Processor seconds so far of the processes with mark in their environment, and bytes that
    their network hosts (hosts.sh) sent: those that the switch received."""
    seconds = sent = 0
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (p / "environ").read_bytes().split(b"\0"):
                seconds += sum(map(int, (p / "stat").read_text().rsplit(")")[1].split()[11:13]))
                for link in pathlib.Path("/sys/class/net").glob(f"v{p.name}-*"):
                    sent += int((link / "statistics/rx_bytes").read_text())
        except OSError:
            pass  # it has ended, or is not ours
    return seconds / TICK, sent


def of_lines(log):
    """What graph.py's report printed."""
    lines = [l.split() for l in open(log) if l.startswith("epoch ")]
    if len(lines) < 2:
        print(f"no epoch after the first in {log}", file=sys.stderr)
        return None
    return statistics.median(float(l[2]) for l in lines[1:]), float(lines[-1][5])


def of_run(directory):
    """What halognn wrote into its run directory."""
    def read(_):
        epochs = [json.loads(l) for l in open(directory / "metrics.jsonl")]
        epochs = [e for e in epochs if e["kind"] == "epoch"]
        shutil.copy(directory / "summary.json", directory.with_suffix(".json"))
        return statistics.median(e["seconds"] for e in epochs[1:]), epochs[-1]["loss"]
    return read


def of_sampler(log):
    """Nanoseconds an edge, from the printed rate in million edges a second."""
    for line in open(log):
        if line.startswith("sampler "):
            return 1e3 / float(line.split()[1]), float("nan")
    return None


def of_sampling(log):
    """Nanoseconds an edge: the rate is the fourth column of the last row."""
    row = [l for l in open(log) if l.startswith("| " + FANOUTS)]
    return (1e3 / float(row[-1].split("|")[4]), float("nan")) if row else None


def of_inference(log):
    """Seconds of the inference itself, without opening and writing."""
    for line in open(log):
        if found := re.search(r"all neighbours, on .*: ([0-9.]+) s", line):
            return float(found[1]), float("nan")
    return None


class Bench:
    def __init__(self, a):
        self.a = a
        self.python = pathlib.Path(a.peers).resolve() / "bin" / "python"
        if not self.python.exists():
            fail(f"{a.peers} is no venv of the peers: make it by profiling/lab/peers/setup.sh "
                 f"{a.peers}")
        self.data = pathlib.Path(a.data).resolve()
        a.half = a.half and pathlib.Path(a.half).resolve()
        self.out = pathlib.Path(a.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.program = ROOT / "bin" / "halognn"
        self.trained = False  # whether the model that predicts is trained

    def parts(self, n, data=None):
        """The dataset in n parts, partitioned once."""
        path = self.out / f"parts-{n}"
        if data:
            path = path.with_name(f"half-{n}")
        if not path.exists():
            method = "contiguous" if n == 1 else "metis"
            typed = ["--features", "degree"] * (n == 1 and (self.data / "columns.npy").exists())
            subprocess.run([self.program, "partition", "--data", data or self.data,
                            "--parts", str(n),
                            "--method", method, "--seed", "1", "--out", path, *typed], check=True,
                           stdout=subprocess.DEVNULL)
        return path

    def dgl_parts(self, *more):
        path = self.out / f"distdgl-4{''.join(more)}"
        if not (path / "g.json").exists():
            subprocess.run([self.python, HERE / "distdgl_parts.py", self.data, "4", path, *more],
                           check=True, stdout=subprocess.DEVNULL)
        return path

    def halognn(self, name, parts, launch, hidden, batch, *sets):
        run = self.out / f"run-{name.replace(' ', '-')}"
        config = self.out / f"{run.name}.yaml"
        config.write_text(json.dumps({
            "data": {"parts": str(self.parts(parts))},
            "model": {"kind": "sage", "layers": 3, "hidden": hidden},
            "sample": {"fanouts": FANOUTS, "batch": batch},
            "train": {"epochs": self.a.epochs, "lr": 0.003, "eval_every": 0},
            "run": {"dir": str(run), "ranks_per_node": 1},
        }))
        command = [*launch, self.program, "train", "--config", config]
        for s in sets:
            command += ["--set", s]
        shell = ["bash", "-c", 'rm -rf "$0"; exec "$@"', run, *command]
        return Contestant(name, [str(c) for c in shell], of_run(run), epochs=run / "metrics.jsonl")

    def peer(self, name, script, *args, read=of_lines):
        command = [self.python, HERE / script, self.data, "--epochs", self.a.epochs,
                   "--fanouts", FANOUTS, *args]
        epochs = None if read == of_lines and "--workers" in args else ""
        env = {"LD_PRELOAD": ALLOCATOR} if ALLOCATOR else {}
        return Contestant(name, [str(c) for c in command], read, env, epochs)

    def inference(self, name, *sets):
        """halognn infer with a model that was trained for an epoch."""
        run = self.out / "run-infer"
        if not self.trained:
            train = self.halognn("infer", 1, [], 256, 1024, "train.epochs=1")
            subprocess.run(train.command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            self.trained = True
        command = [self.program, "infer", "--run", run, "--out", self.out / "predictions.npy"]
        for s in sets:
            command += ["--set", s]
        shell = ["bash", "-c", 'rm -f "$0"; exec "$@"', self.out / "predictions.npy", *command]
        return Contestant(name, [str(c) for c in shell], of_inference, epochs="")

    def distdgl(self, rate, samplers, hidden, *more, fanouts=FANOUTS):
        classes = json.loads((self.data / "meta.json").read_text())["classes"]
        bolt = [o for o in more if o == "--graphbolt"]
        command = [HERE / "distdgl.sh", self.python, self.dgl_parts(*bolt), rate, samplers,
                   "--epochs", self.a.epochs, "--fanouts", fanouts, "--hidden", hidden,
                   "--batch", 256, "--classes", classes, *more]
        name = "DistDGL bf16" if "--bf16" in more else "DistDGL"
        return Contestant(f"{name}, {samplers} samplers{' of GraphBolt' * len(bolt)}",
                          [str(c) for c in command], of_lines, epochs=None)

    def case(self, name):
        if name in MODELS:
            kind = MODELS[name]
            for more in ([], [BF16], [LABOR], [LABOR, BF16]):
                words = ["halognn", *("bf16" if s == BF16 else "labor" for s in more)]
                yield self.halognn(" ".join(words), 1, [], 256, 1024, f"model.kind={kind}", *more)
            for how in ("graphbolt", "labor", "neighbor"):
                for bf16 in ([], ["--bf16"]):
                    for workers in (0, 1, 2):
                        yield self.peer(f"DGL {how}{' bf16' * len(bf16)}, {workers} workers",
                                        "dgl_train.py", "--how", how, "--workers", workers,
                                        "--kind", kind, *bf16)
            if self.a.pyg and name == "one":
                for workers in (0, 2):
                    yield self.peer(f"PyG, {workers} workers", "pyg_train.py", "--workers", workers)
        elif name == "inference":
            yield self.inference("halognn")
            yield self.inference("halognn bf16", BF16)
            for bf16 in ([], ["--bf16"]):
                for workers in (0, 1, 2):
                    yield self.peer(f"DGL{' bf16' * len(bf16)}, {workers} workers", "dgl_infer.py",
                                    "--workers", workers, *bf16)
        elif name == "sampler":
            command = ["go", "run", "./profiling/lab/sampling", "-count", 32, "-batches", 1024,
                       "-fanouts", FANOUTS, self.parts(1)]
            yield Contestant("halognn", [str(c) for c in command], of_sampling)
            for how in ("graphbolt", "labor", "neighbor"):
                yield self.peer(f"DGL {how}", "dgl_train.py", "--how", how, "--sampler",
                                read=of_sampler)
            if self.a.pyg:
                yield self.peer("PyG", "pyg_train.py", "--sampler", read=of_sampler)
        elif name == "pairs":
            for how in ("uniform", "joint"):
                yield self.halognn(f"halognn {how}", 1, [], 64, 1024, "model.layers=2",
                                   "sample.fanouts=10,5", f"links.negatives={how}:4",
                                   "links.loss=cross-entropy", "links.eval_negatives=1")
            for workers in (0, 1, 2):
                yield self.peer(f"GraphBolt, {workers} workers", "dgl_links.py", "--workers",
                                workers, "--fanouts", "10,5", "--hidden", 64, "--negatives", 4)
                for threads in (1, 2) if self.a.pyg else ():
                    yield self.peer(f"PyG, {workers} workers, {threads} threads", "pyg_links.py",
                                    "--workers", workers, "--threads", threads, "--fanouts", "10,5",
                                    "--hidden", 64, "--dropout", 0.5, "--disjoint")
        elif name in ("rgcn", "rsage"):
            kind, sets = KINDS[name], TYPED + [f"model.kind={KINDS[name]}", "cache.policy=none"]
            yield self.halognn("halognn", 1, [], 64, 1024, *sets)
            for how in ("graphbolt", "neighbor"):
                for workers in (0, 1, 2):
                    yield self.peer(f"DGL {how}, {workers} workers", "dgl_typed.py", "--how", how,
                                    "--kind", kind, "--workers", workers, "--fanouts", "10,10",
                                    "--hidden", 64)
        elif name.endswith("-1gbit"):
            kind = KINDS[name[:-len("-1gbit")]]
            sets = TYPED + AHEAD + [f"model.kind={kind}", "model.learned=64"]
            yield self.halognn("halognn", 4, hosts("1gbit"), 64, 256, *sets)
            yield self.halognn("halognn sums", 4, hosts("1gbit"), 64, 256, *sets, SUMS)
            yield self.halognn("halognn sums labor", 4, hosts("1gbit"), 64, 256, *sets, SUMS,
                               *LASTING)
            yield self.halognn("halognn sums vip", 4, hosts("1gbit"), 64, 256, *sets, SUMS,
                               "cache.policy=vip", "cache.alpha=0.5", "compute.threads=1")
            for samplers in self.a.samplers:
                for bolt in ([], ["--graphbolt"]):
                    yield self.distdgl("1gbit", samplers, 64, "--kind", kind, *bolt,
                                       fanouts="10,10")
        elif name == "links":
            for rate in ("none", "1gbit", "200mbit"):
                yield self.halognn(f"halognn labor {rate}", 4, hosts(rate), 64, 256, *AHEAD, *SLOW,
                                   *LASTING)
        else:
            rate = "none" if name == "four" else name
            hidden, sets = (256, []) if name == "four" else (64, AHEAD)
            if name == "200mbit":
                sets = sets + SLOW
            yield self.halognn("halognn", 4, hosts(rate), hidden, 256, *sets)
            if name == "four":
                yield self.halognn("halognn bf16", 4, hosts(rate), hidden, 256, *sets, BF16)
                yield self.halognn("halognn labor", 4, hosts(rate), hidden, 256, *sets, LABOR)
            else:
                yield self.halognn("halognn sums", 4, hosts(rate), hidden, 256, *sets, SUMS)
                yield self.halognn("halognn labor", 4, hosts(rate), hidden, 256, *sets, *LASTING)
            if name != "four" and self.a.half:
                yield self.halognn("halognn sums float16", 4, hosts(rate), hidden, 256, *sets, SUMS,
                                   f"data.parts={self.parts(4, self.a.half)}")
            for samplers in self.a.samplers:
                yield self.distdgl(rate, samplers, hidden)
                yield self.distdgl(rate, samplers, hidden, "--bf16")

    def compare(self, name):
        rows, fastest = {}, {}
        for k in range(self.a.rounds):
            for c in self.case(name):
                if self.a.only and not c.name.startswith(tuple(self.a.only)):
                    continue
                if "bf16" in c.name and not HAS_BF16:
                    continue
                if k and c.peer in fastest and fastest[c.peer][1] != c.name:
                    continue
                plain = c.name.replace(" ", "-").replace(",", "")
                got = c.run(self.out / f"{name}-{plain}-{k}.log")
                rows.setdefault(c.name, []).append(got)
                if got and k == 0:
                    fastest[c.peer] = min((got[0], c.name), fastest.get(c.peer, (math.inf, "")))
                print(f"{name}, round {k + 1}: {c.name}: "
                      + ("failed" if got is None else f"{got[0]:.3f} s, {got[2]:.3f} of processors"),
                      file=sys.stderr)
        ours = rows.get("halognn") or next(iter(rows.values()))
        unit = "ns an edge" if name == "sampler" else "s an epoch"
        lines = [f"\n### {name}\n", f"| | {unit} | loss | ratio to the first line (least, most) "
                 "| processor s | ratio (least, most) | MB |", "|---|--:|--:|--:|--:|--:|--:|"]
        for who, results in rows.items():
            pairs = [(r, o) for r, o in zip(results, ours) if r and o]
            if not pairs:
                lines.append(f"| {who} | failed | | | | | |")
                continue
            ratios = [r[0] / o[0] for r, o in pairs]
            loss = statistics.median(r[1] for r, _ in pairs)
            cpu = [r[2] / o[2] for r, o in pairs if r[2] / o[2] > 0]
            sent = statistics.median(r[3] for r, _ in pairs) / 1e6
            lines.append(f"| {who} | {statistics.median(r[0] for r, _ in pairs):.3f} "
                         f"| {'' if math.isnan(loss) else f'{loss:.3f}'} "
                         f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}, "
                         f"{max(ratios):.2f}) |"
                         + (f" {statistics.median(r[2] for r, _ in pairs):.2f} | "
                            f"{statistics.median(cpu):.2f} ({min(cpu):.2f}, {max(cpu):.2f}) |"
                            if cpu else " | |") + (f" {sent:.0f} |" if sent > 0 else " |"))
        text = "\n".join(lines) + f"\n\n{ALLOCATED}\n"
        print(text)
        (self.out / f"{name}.md").write_text(text)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data")
    p.add_argument("cases", nargs="+",
                   choices=[*MODELS, "inference", "four", "1gbit", "200mbit", "links", "pairs",
                            "rgcn", "rsage", "rgcn-1gbit", "rsage-1gbit", "sampler"])
    p.add_argument("--out", default="run/peers")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--peers", default="build/peers", help="the venv that setup.sh made")
    p.add_argument("--samplers", type=int, nargs="+", default=[0],
                   help="DistDGL's sampling processes a trainer; one or more need a core of theirs")
    p.add_argument("--only", nargs="+", metavar="NAME",
                   help="contestants whose names begin so, as halognn PyG")
    p.add_argument("--half", help="a DATASET like the other, of float16 rows")
    p.add_argument("--pyg", action="store_true", help="PyG too: needs torch-sparse or pyg-lib")
    bench = Bench(p.parse_args())
    for name in bench.a.cases:
        bench.compare(name)


if __name__ == "__main__":
    main()
