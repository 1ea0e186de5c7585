#!/usr/bin/env python3
"""Accuracy and cost of sample.kind labor compared with neighbour, a run at a time.

    profiling/lab/labor.py DATA CSV [--out run/labor] [--seeds 1-10] [--sets computers,...]
                           [--batches 512,4096] [--settings 0,1,...] [--seconds 3600]
    profiling/lab/labor.py DATA CSV --table

Trains what CSV does not have yet, on 4 ranks in one process with look-ahead at alpha 0.2, and adds
a line to CSV after each run, so that a stopped study can continue. Seeds are the
outer loop: the same settings of all sets for one seed, then the next. DATA holds the public graphs;
products is generated. --table prints, for each set and batch, differences to neighbour at fanouts
x1, paired by seed, with standard errors; cost is relative to it. rows and bytes are those of an
epoch over all ranks, bytes with ids (no ratio below 1 kB); seconds are the median epoch's. It also
prints the settings with the fewest rows and bytes that are within 0.3 points or two standard errors
over 3 seeds or more, and draws a figure of each set beside CSV."""

import argparse
import csv
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# name: format and path for import, fanouts, hidden width, epochs, learning rate, epochs between
# evaluations
SETS = {
    "computers": ("npz", "amazon-computers", (10, 10), 128, 30, 0.003, 1),
    "cora": ("planetoid", "cora", (10, 10), 128, 30, 0.01, 1),
    "fb100-5": ("ogb", "fb100-5/ogb", (10, 10), 128, 15, 0.003, 5),
    "cornell5": ("saint", "cornell5-saint", (10, 10), 128, 30, 0.01, 5),
    "products": (None, None, (15, 10, 5), 64, 10, 0.003, 5),
}
# kind, factor of the fanouts, share, dependency, layer dependency; the most informative first
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
            call("profiling/lab/import.sh", form, a.data / path, data)
        else:
            call(a.program, "generate", "--kind", "sbm", "--preset", "products", "--scale", "0.1",
                 "--seed", "5", "--out", data)
    if not (cut / "meta.json").exists():
        call(a.program, "partition", "--data", data, "--parts", "4", "--method", "metis",
             "--seed", "1", "--out", cut)
    return cut


def train(a, key):
    """Trains one setting; returns its line of CSV."""
    name, batch, kind, factor, share, dependency, layer, seed = key
    _, _, fanouts, hidden, epochs, rate, every = SETS[name]
    run = a.out / "run"
    shutil.rmtree(run, ignore_errors=True)
    values = {
        "data.parts": parts(a, name), "run.dir": run, "run.ranks_per_node": 1,
        "model.layers": len(fanouts), "model.hidden": hidden, "sample.batch": batch,
        "sample.fanouts": ",".join(str(round(f * factor)) for f in fanouts), "sample.kind": kind,
        "train.seed": seed, "train.epochs": epochs, "train.lr": rate, "train.eval_every": every,
        "cache.policy": "lookahead", "cache.alpha": 0.2, "compute.threads": 1,
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
    """The results in CSV, by key."""
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
        for batch in a.batches.split(","):
            for name in a.sets.split(","):
                for setting in (SETTINGS[int(i)] for i in a.settings.split(",")):
                    key = (name, batch, *setting, seed)
                    if tuple(str(k) for k in key) in done:
                        continue
                    if time.time() - begin > a.seconds:
                        return
                    found = train(a, key)
                    with open(a.csv, "a") as f:
                        f.write(",".join(str(v) for v in [*key, *found]) + "\n")


def settings(done):
    """Yields (set, batch, its settings): for each setting its name, the seeds that neighbour at x1
    has too, the mean test accuracy, the mean difference to neighbour at x1, its standard error (NaN
    for one seed), and rows, bytes and seconds relative to it (NaN for bytes below 1 kB)."""
    lines = {}
    for (name, batch, *how, seed), found in done.items():
        lines.setdefault((name, batch), {}).setdefault(tuple(how), {})[seed] = found
    for (name, batch), runs in sorted(lines.items(), key=lambda l: (l[0][0], int(l[0][1]))):
        base, of = runs.get(("neighbour", "1", "rank", "1", "False"), {}), []
        for (kind, factor, share, lasts, layer), found in runs.items():
            seeds = [s for s in found if s in base]
            if not seeds:
                continue
            gap = [found[s][1] - base[s][1] for s in seeds]
            error = statistics.stdev(gap) / len(gap) ** .5 if len(gap) > 1 else math.nan
            cost = [[sum(r[s][i] for s in seeds) for r in (found, base)] for i in (2, 3, 4)]
            told = f"{kind} x{factor}"
            if kind == "labor":
                told += f", {share}, {lasts}" + ", one number for all hops" * (layer == "True")
            of.append((told, len(seeds), statistics.mean(found[s][1] for s in seeds),
                       statistics.mean(gap), error,
                       *(c / b if i != 1 or b >= 1000 else math.nan
                         for i, (c, b) in enumerate(cost))))
        yield name, batch, sorted(of, key=lambda s: (s[0][0] != "n", -s[1], s[5]))


def number(x, form):
    return "" if math.isnan(x) else format(x, form)


def table(done):
    """Prints each setting compared with neighbour at x1, and the cheapest that are no worse."""
    print("| set, batch | setting | seeds | test | difference | its standard error "
          "| rows | bytes | seconds |\n|---|---|--:|--:|--:|--:|--:|--:|--:|")
    chosen = []
    for name, batch, of in settings(done):
        for told, seeds, test, gap, error, *cost in of:
            print(f"| {name}, {batch} | {told} | {seeds} | {test:.2f} | {gap:+.2f} | "
                  f"{number(error, '.2f')} | {' | '.join(number(c, '.3f') for c in cost)} |")
        fair = [s for s in of if s[1] >= 3 and s[3] >= -max(0.3, 2 * s[4])]
        for cost, at in (("rows", 5), ("bytes", 6)):
            told, seeds, _, gap, error, rows, sent, _ = min(
                (s for s in fair if not math.isnan(s[at])), key=lambda s: s[at],
                default=("", 0, *[math.nan] * 6))
            chosen.append(f"| {name}, {batch} | {cost} | {told} | {seeds} | {number(gap, '+.2f')} | "
                          f"{number(error, '.2f')} | {number(rows, '.3f')} | {number(sent, '.3f')} |")
    print("\n| set, batch | fewest | setting | seeds | difference | its standard error | rows "
          "| bytes |\n|---|---|---|--:|--:|--:|--:|--:|", *chosen, sep="\n")


def figures(done, directory):
    """Draws labor-SET.svg for each set: test accuracy against rows, a panel for each batch."""
    panels = {}
    for name, batch, of in settings(done):
        panels.setdefault(name, []).append((batch, of))
    for name, parts in panels.items():
        text = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{460 * len(parts)}" height="330" '
                'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" '
                'fill="white"/>']
        for k, (batch, of) in enumerate(parts):
            errors = [0 if math.isnan(s[4]) else s[4] for s in of]
            low = min(s[2] - e for s, e in zip(of, errors)) - .1
            high = max(s[2] + e for s, e in zip(of, errors)) + .1
            right = max(s[5] for s in of) * 1.05
            x = lambda rows: 460 * k + 50 + 390 * rows / right
            y = lambda test: 285 - 245 * (test - low) / (high - low)
            text.append(f'<text x="{x(0)}" y="20" font-size="13">{name}, batch {batch}: test, %, '
                        f'against rows of neighbour x1</text><path d="M{x(0)} 40V285H{x(right)}" '
                        'fill="none" stroke="black"/>')
            for i in range(5):
                at = low + (high - low) * i / 4
                text.append(f'<text x="{x(0) - 6}" y="{y(at) + 4:.0f}" text-anchor="end">{at:.1f}'
                            f'</text><text x="{x(right * i / 4):.0f}" y="302" '
                            f'text-anchor="middle">{right * i / 4:.2f}</text>')
            for (told, seeds, test, _, _, rows, *_), e in zip(of, errors):
                colour = "#c03030" if told[0] == "n" else "#3050c0"
                short = told.replace("neighbour ", "").replace("labor ", "")
                short = short.replace(", rank", "").replace("one number for all hops", "1 for hops")
                text.append(f'<path d="M{x(rows):.1f} {y(test - e):.1f}V{y(test + e):.1f}" '
                            f'stroke="{colour}"/><circle cx="{x(rows):.1f}" cy="{y(test):.1f}" '
                            f'r="{4 if seeds >= 3 else 2}" fill="{colour}"/><text '
                            f'x="{x(rows) + 6:.1f}" y="{y(test) - 4:.1f}" fill="{colour}" '
                            f'font-size="9">{short}</text>')
        text.append('<text x="50" y="322">red: neighbour, blue: labor (factor of fanouts, steps that '
                    'a number lasts); large: 3 seeds or more; bars: standard errors of differences'
                    '</text></svg>')
        (directory / f"labor-{name}.svg").write_text("\n".join(text) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("csv", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "run" / "labor")
    p.add_argument("--program", default=ROOT / "bin" / "halognn")
    p.add_argument("--seeds", default="1-10")
    p.add_argument("--sets", default=",".join(SETS))
    p.add_argument("--batches", default="512,4096")
    p.add_argument("--settings", default=",".join(str(i) for i in range(len(SETTINGS))),
                   help="their places in SETTINGS")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no run after so many")
    p.add_argument("--table", action="store_true")
    a = p.parse_args()
    if a.table:
        table(read(a.csv))
        figures(read(a.csv), a.csv.resolve().parent)
        return
    a.data, a.out = a.data.resolve(), a.out.resolve()
    os.makedirs(a.out, exist_ok=True)
    try:
        study(a)
    except subprocess.CalledProcessError as e:
        sys.exit(f"labor.py: {e}")


if __name__ == "__main__":
    main()
