#!/usr/bin/env python3
"""R2 of the voltages of a power grid's buses, with and without the features of its branches.

    profiling/lab/pegase.py CASE [--out run/pegase] [--seeds 10]

CASE is a MATPOWER case. GATv2 of four layers, 64 wide, with all neighbours, 200 epochs of one
minibatch, of which the best by validation counts; each seed has a split and a model of its own.
Prints means and standard errors. It does not repeat runs that are in OUT. HALOGNN is the program
(bin/halognn)."""

import argparse
import csv
import json
import math
import os
import re
import statistics
import subprocess

KINDS = {"gatv2": "false", "gatv2 with edges": "true"}


def table(text, name):
    body = re.search(r"mpc\." + name + r"\s*=\s*\[(.*?)\];", text, re.S).group(1)
    lines = (line.split("%")[0].replace(";", "").split() for line in body.split("\n"))
    return [[float(x) for x in line] for line in lines if line]


def log(x):
    return math.copysign(math.log1p(abs(x)), x)


def standardized(rows):
    columns = [(statistics.fmean(c), statistics.pstdev(c) + 1e-9) for c in zip(*rows)]
    return [[(x - mean) / sd for x, (mean, sd) in zip(row, columns)] for row in rows]


def convert(case, out):
    """Writes the buses and the branches, in both directions, as tables."""
    with open(case, encoding="utf8") as f:
        text = f.read()
    bus, generators, branch = table(text, "bus"), table(text, "gen"), table(text, "branch")
    power = {b[0]: [0, 0] for b in bus}
    for g in generators:
        if g[7] > 0:
            power[g[0]][0] += g[1]
            power[g[0]][1] += 1
    levels = sorted({b[9] for b in bus})
    nodes = [[log(x) for x in b[2:6] + power[b[0]]] + [float(b[9] == v) for v in levels]
             + [float(b[1] == k) for k in (1, 2, 3, 4)] for b in bus]
    ends, edges = [], []
    for back in (0, 1):
        for r in branch:
            if r[10] > 0:
                ends.append((r[1], r[0]) if back else (r[0], r[1]))
                edges.append([r[2], r[3], r[4], log(r[5]), (r[8] or 1) - 1, r[9] / 30,
                              math.log(abs(r[3]) + 1e-5), back])
    for name, ids, keys, rows in (
            ("nodes", ["bus", "voltage"], [(int(b[0]), b[7]) for b in bus], nodes),
            ("edges", ["from", "to"], [tuple(map(int, e)) for e in ends], standardized(edges))):
        with open(f"{out}/{name}.csv", "w", newline="", encoding="utf8") as f:
            to = csv.writer(f)
            to.writerow(ids + [f"x{i}" for i in range(len(rows[0]))])
            to.writerows(list(k) + row for k, row in zip(keys, rows))
    return len(edges[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--out", default="run/pegase")
    parser.add_argument("--seeds", type=int, default=10)
    a = parser.parse_args()
    out, program = a.out, os.environ.get("HALOGNN", "bin/halognn")
    os.makedirs(out, exist_ok=True)
    columns = ",".join(f"x{i}" for i in range(convert(a.case, out)))

    def halognn(*args):
        subprocess.run([program, "--quiet", *args], check=True, stdout=subprocess.DEVNULL)

    scores = {kind: [] for kind in KINDS}
    for seed in range(a.seeds):
        parts = f"{out}/parts-{seed}"
        if not os.path.isdir(parts):
            halognn("import", "--format", "csv", "--in", f"{out}/edges.csv", "--nodes",
                    f"{out}/nodes.csv", "--id", "bus", "--task", "regression", "--label", "voltage",
                    "--edge-features", columns, "--directed", "--split", "60/20/20", "--seed",
                    str(seed), "--out", f"{out}/data-{seed}", "--force")
            halognn("partition", "--data", f"{out}/data-{seed}", "--parts", "1", "--out", parts)
        for kind, edges in KINDS.items():
            run = f"{out}/{kind.replace(' ', '-')}-{seed}"
            if not os.path.exists(f"{run}/summary.json"):
                with open(f"{run}.yaml", "w", encoding="utf8") as f:
                    json.dump({"data": {"parts": parts}, "run": {"dir": run}}, f)
                sets = {"model.kind": "gatv2", "model.layers": 4, "model.hidden": 64,
                        "model.heads": 4, "model.dropout": 0, "model.residual": "true",
                        "model.norm": "none", "model.edge_features": edges, "train.seed": seed,
                        "train.epochs": 200, "train.lr": 0.003, "train.eval_every": 2,
                        "train.metric": "r2", "sample.fanouts": "-1,-1,-1,-1",
                        "sample.batch": 100000, "cache.policy": "none"}
                halognn("train", "--config", f"{run}.yaml",
                        *(a for key, value in sets.items() for a in ("--set", f"{key}={value}")))
            with open(f"{run}/summary.json", encoding="utf8") as f:
                scores[kind].append(json.load(f)["test_metric"])
    print("| model | seeds | R2 | its standard error |\n|---|--:|--:|--:|")
    both = list(scores.values())
    scores["difference"] = [b - a for a, b in zip(*both)]
    for kind, of in scores.items():
        error = statistics.stdev(of) / len(of) ** 0.5 if len(of) > 1 else math.nan
        print(f"| {kind} | {len(of)} | {statistics.fmean(of):.3f} | {error:.3f} |")


main()
