#!/usr/bin/env python3
"""Accuracy against cost of sample.kind labor beside neighbour, a run at a time.

    profiling/labor.py DATA CSV [--out run/labor] [--seeds 1-10] [--sets computers,...]
                       [--first N] [--seconds 3600]
    profiling/labor.py DATA CSV --table

Trains what CSV does not have yet, on 4 ranks in one process with look-ahead at alpha 0.2, and adds
a line to CSV after each run, so that a study that is stopped goes on where it was. Seeds are the
outer loop: the same settings of all sets for one seed, then the next. DATA holds the public graphs;
products is generated. --table prints, for each set and batch, differences to neighbour at fanouts
x1, paired by seed, with standard errors; cost is relative to it. rows and bytes are those of an
epoch over all ranks, bytes with ids (no ratio below 1 kB); seconds are the median epoch's."""

import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# name: format and path of import, fanouts, hidden width, epochs, learning rate, evaluation every
SETS = {
    "computers": ("npz", "amazon-computers", (10, 10), 128, 30, 0.003, 1),
    "cora": ("planetoid", "cora", (10, 10), 128, 30, 0.01, 1),
    "fb100-5": ("ogb", "fb100-5/ogb", (10, 10), 128, 15, 0.003, 5),
    "cornell5": ("saint", "cornell5-saint", (10, 10), 128, 30, 0.01, 5),
    "products": (None, None, (15, 10, 5), 64, 10, 0.003, 5),
}
# kind, factor of the fanouts, share, dependency, layer dependency; the most telling first
SETTINGS = [
    ("neighbour", 1, "rank", 1, False), ("labor", 1, "rank", 64, False),
    ("labor", 1, "rank", 64, True), ("labor", 1, "rank", 1, False),
    ("labor", 1.25, "rank", 64, False), ("labor", 1.5, "rank", 64, False),
    ("labor", 1.5, "rank", 1, False), ("labor", 1, "all", 1, False),
    ("labor", 1, "rank", 1, True), ("neighbour", 1.5, "rank", 1, False),
    ("labor", 2.5, "rank", 64, False), ("labor", 1, "all", 64, False),
    ("labor", 1, "rank", 16, False), ("labor", 1.5, "rank", 16, False),
    ("labor", 1.5, "all", 1, False), ("labor", 2.5, "rank", 1, False),
    ("neighbour", 2.5, "rank", 1, False), ("labor", 1.5, "rank", 64, True),
]
KEY = ["set", "batch", "kind", "factor", "share", "dependency", "layer_dependency", "seed"]
FOUND = ["epochs", "test", "rows", "bytes", "seconds"]


def call(*command):
    subprocess.run([str(c) for c in command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def parts(a, name):
    """The set in four METIS parts, made once."""
    form, path = SETS[name][:2]
    data, cut = a.out / name, a.out / f"{name}-4"
    if not (data / "meta.json").exists():
        if form:
            call("profiling/import.sh", form, a.data / path, data)
        else:
            call(a.program, "generate", "--kind", "sbm", "--preset", "products", "--scale", "0.1",
                 "--seed", "5", "--out", data)
    if not (cut / "meta.json").exists():
        call(a.program, "partition", "--data", data, "--parts", "4", "--method", "metis",
             "--seed", "1", "--out", cut)
    return cut


def train(a, key):
    """Trains one setting; returns what CSV tells of it."""
    name, batch, kind, factor, share, dependency, layer, seed = key
    _, _, fanouts, hidden, epochs, rate, every = SETS[name]
    run = a.out / "run"
    shutil.rmtree(run, ignore_errors=True)
    values = {
        "data.parts": parts(a, name), "run.dir": run, "run.ranks_per_node": 1,
        "model.layers": len(fanouts), "model.hidden": hidden, "sample.batch": batch,
        "sample.fanouts": ",".join(str(round(f * factor)) for f in fanouts), "sample.kind": kind,
        "train.seed": seed, "train.epochs": epochs, "train.lr": rate, "train.eval_every": every,
        "cache.policy": "lookahead", "cache.alpha": 0.2,
    }
    if kind == "labor":
        values |= {"sample.share": share, "sample.dependency": dependency,
                   "sample.layer_dependency": str(layer).lower()}
    sets = [word for k, v in values.items() for word in ("--set", f"{k}={v}")]
    call(a.program, "train", "--quiet", "--ranks-in-process", 4, "--config",
         "inputs/reference.yaml", *sets)
    s = json.loads((run / "summary.json").read_text())
    return [epochs, f"{100 * s['test_accuracy']:.2f}", s["loaded_rows"],
            s["remote_bytes"] + s["id_bytes"], f"{s['epoch_seconds']:.3f}"]


def read(path):
    """Lines of CSV: what was found, by key."""
    if not path.exists():
        return {}
    with open(path, newline="") as f:
        return {tuple(line[k] for k in KEY): [float(line[k]) for k in FOUND]
                for line in csv.DictReader(f)}


def study(a):
    done, begin = read(a.csv), time.time()
    if not done:
        a.csv.write_text(",".join(KEY + FOUND) + "\n")
    first, last = (int(n) for n in a.seeds.split("-"))
    for seed in range(first, last + 1):
        for batch in (512, 4096):
            for name in a.sets.split(","):
                for setting in SETTINGS[:a.first]:
                    key = (name, batch, *setting, seed)
                    if tuple(str(k) for k in key) in done:
                        continue
                    if time.time() - begin > a.seconds:
                        return
                    found = train(a, key)
                    with open(a.csv, "a") as f:
                        f.write(",".join(str(v) for v in [*key, *found]) + "\n")


def table(done):
    """Prints each setting beside neighbour at x1, over the seeds that both have."""
    print("| set, batch | setting | seeds | test | difference | its standard error "
          "| rows | bytes | seconds |\n|---|---|--:|--:|--:|--:|--:|--:|--:|")
    lines = {}
    for (*setting, seed), found in done.items():
        lines.setdefault(tuple(setting), {})[seed] = found
    for (name, batch, *how), runs in lines.items():
        base = lines.get((name, batch, "neighbour", "1", "rank", "1", "False"), {})
        seeds = [s for s in runs if s in base]
        if not seeds:
            continue
        gap = [runs[s][1] - base[s][1] for s in seeds]
        error = f"{statistics.stdev(gap) / len(gap) ** .5:.2f}" if len(gap) > 1 else ""
        cost = [(sum(runs[s][i] for s in seeds), sum(base[s][i] for s in seeds)) for i in (2, 3, 4)]
        kind, factor, share, dependency, layer = how
        name = f"{name}, {batch}"
        told = f"{kind} x{factor}"
        if kind == "labor":
            told += f", {share}, {dependency}" + (", one number for all hops" * (layer == "True"))
        costs = " | ".join("" if i == 1 and of < 1000 else f"{c / of:.3f}"
                           for i, (c, of) in enumerate(cost))
        print(f"| {name} | {told} | {len(seeds)} | {statistics.mean(runs[s][1] for s in seeds):.2f}"
              f" | {statistics.mean(gap):+.2f} | {error} | {costs} |")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("csv", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "run" / "labor")
    p.add_argument("--program", default=ROOT / "bin" / "halognn")
    p.add_argument("--seeds", default="1-10")
    p.add_argument("--sets", default=",".join(SETS))
    p.add_argument("--first", type=int, default=len(SETTINGS), help="only so many settings")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no run after so many")
    p.add_argument("--table", action="store_true")
    a = p.parse_args()
    if a.table:
        table(read(a.csv))
        return
    a.data, a.out = a.data.resolve(), a.out.resolve()
    os.makedirs(a.out, exist_ok=True)
    try:
        study(a)
    except subprocess.CalledProcessError as e:
        sys.exit(f"labor.py: {e}")


if __name__ == "__main__":
    main()
