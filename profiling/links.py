#!/usr/bin/env python3
"""AUC and average precision of links beside PyTorch Geometric's full batch.

    profiling/links.py DATA [--out run/links] [--seeds 10] [--sets cora,citeseer] [--jobs 1]

DATA/NAME/neutral has the graphs as NumPy files; rows of features are made to add up to 1. Each
seed has a split and a model of its own: full batch (all links and neighbours, one negative a link,
cross-entropy of inner products, 128 and 64 wide, 100 epochs at 0.01, the epoch that validates
best; negatives are any pairs, and validation links pass messages when test links are judged, as in
the reference), and the same in minibatches of 256 links without their own edges. Prints means, standard
deviations and standard errors in percent. A run that is in OUT already is not done again."""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
FULL = ["sample.batch=1000000", "links.exclude=false"]
WAYS = {"full batch": FULL, "256 links": ["sample.batch=256", "links.exclude=true"]}


def call(log, *command):
    with open(log, "w") as out:
        subprocess.run([str(c) for c in command], check=True, cwd=ROOT, stdout=out, stderr=out)


def source(data, path):
    """The neutral form of a graph as a .npz that halognn imports."""
    def load(name):
        return numpy.load(data / "neutral" / f"{name}.npy")

    indptr, indices = load("feat_indptr"), load("feat_indices")
    n, degree = len(indptr) - 1, numpy.diff(indptr)
    width = json.loads((data / "neutral" / "meta.json").read_text())["feature_dim"]
    edges = load("edges")
    edges = numpy.concatenate([edges, edges[:, ::-1]])
    edges = edges[numpy.lexsort((edges[:, 1], edges[:, 0]))]
    numpy.savez(path, adj_shape=[n, n], adj_indices=edges[:, 1], attr_shape=[n, width],
                adj_data=numpy.ones(len(edges), numpy.float32), attr_indices=indices,
                adj_indptr=numpy.searchsorted(edges[:, 0], numpy.arange(n + 1)),
                attr_data=(1 / numpy.repeat(degree, degree)).astype(numpy.float32),
                attr_indptr=indptr, labels=load("labels").clip(0))


def cut(a, name, seed):
    """The links of a seed, in one part."""
    cut = a.out / f"{name}-{seed}"
    if not (cut / "meta.json").exists():
        npz, data = a.out / f"{name}.npz", a.out / f"{name}-{seed}.data"
        if not npz.exists():
            source(a.data / name, npz)
        shutil.rmtree(data, ignore_errors=True)
        call(a.out / "log", a.program, "import", "--format", "npz", "--in", npz, "--undirected",
             "--task", "links", "--split-links", "85/5/10", "--seed", seed, "--out", data)
        call(a.out / "log", a.program, "partition", "--data", data, "--parts", 1, "--method",
             "random", "--out", cut)
        shutil.rmtree(data)


def train(a, way, name, kind, seed):
    """Trains once; returns AUC and average precision of the test links."""
    run = a.out / f"{name}-{kind}-{way.split()[0]}-{seed}"
    if not (run / "summary.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        sets = [f"data.parts={a.out}/{name}-{seed}", f"run.dir={run}", f"model.kind={kind}",
                "model.hidden=128", "model.dropout=0", "links.width=64", "sample.fanouts=[-1,-1]",
                "train.epochs=100", "train.lr=0.01", f"train.seed={seed}", "train.metric=auc",
                "compute.threads=1", "pipeline.workers=1", "links.negatives=uniform:1",
                "links.loss=cross-entropy", "links.eval_negatives=1", "links.corrupt=pair",
                "links.graph=train+valid"]
        if kind == "gcn":
            sets.append("model.gcn_norm=both")
        call(f"{run}.log", a.program, "train", "--config", a.out / "config.yaml",
             *(w for s in sets + WAYS[way] for w in ("--set", s)))
    found = json.loads((run / "summary.json").read_text())["test_links"]
    return 100 * found["auc"], 100 * found["average_precision"]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "run/links")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--jobs", type=int, default=1, help="runs at a time, each on one thread")
    p.add_argument("--sets", default="cora,citeseer")
    p.add_argument("--program", default=os.environ.get("HALOGNN", ROOT / "bin/halognn"))
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "config.yaml").write_text("model: {layers: 2}\n")
    sets = a.sets.split(",")
    for name, seed in itertools.product(sets, range(a.seeds)):
        cut(a, name, seed)
    runs = list(itertools.product(WAYS, sets, ("gcn", "sage"), range(a.seeds)))
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        found = list(pool.map(lambda run: train(a, *run), runs))
    print("| data set | model | links | AUC | sd | error | average precision | sd | error |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    for at in range(0, len(runs), a.seeds):
        way, name, kind, _ = runs[at]
        row = []
        for values in zip(*found[at:at + a.seeds]):
            sd = statistics.stdev(values)
            row += [statistics.mean(values), sd, sd / math.sqrt(len(values))]
        print(f"| {name} | {kind} | {way} | " + " | ".join(f"{x:.2f}" for x in row) + " |")


if __name__ == "__main__":
    main()
