#!/usr/bin/env python3
"""Compares link prediction with PyTorch Geometric, on the same splits and negatives.

    profiling/lab/links.py DATA [--out run/links] [--seeds 10] [--sets cora,citeseer] [--jobs 1]
                                [--kinds gcn,sage] [--ways all,256] [--own KEY=VALUE]
                                [--python build/peers/bin/python]

cora and citeseer: rows of features add up to 1; a minibatch has all links and neighbours; each link
has a negative of two vertices without an edge; the loss is the cross-entropy of inner products;
widths are 128 and 64; 100 epochs at 0.01, of which the best by validation counts; validation links
pass messages in the test. halognn also trains in minibatches of 256 links without their own edges,
for 20 epochs. amazon-computers, fb100-5: minibatches of some thousand links, through whose other
links messages pass; 2 layers that draw 10 and 5; width 64; one other target for each link. PyTorch
Geometric uses LinkNeighborLoader (SPARSE=1 profiling/lab/peers/setup.sh) with all training links out
of the graph, halognn with those of the minibatch out of it. Features of amazon-computers are centred,
then rows get length 1: with that length alone, 4 epochs left both at an MRR below 13. lp-cora,
lp-citeseer: all links, compared with the unchanged program DATA/../peers/reference/lp.py, with its
seeds, splits and test pairs, which halognn's model scores. halognn chooses the epoch with
candidates of its own. Each seed has a split and a model of its own and, for each validation and
test link, 100 other targets; AUC and average precision use the first of them. Prints means and
standard errors in percent, and the differences on the same splits. It does not repeat runs that are
in OUT."""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
JUDGED = 100
METRICS = {"auc": "AUC", "average_precision": "average precision", "mrr": "MRR"}
FULL = {"split": "85/5/10", "kinds": ("gcn", "sage"), "metric": "auc", "own": [
    "model.hidden=128", "sample.fanouts=[-1,-1]", "train.lr=0.01", "links.corrupt=pair",
    "links.graph=train+valid"], "ways": {
        "all links": ["train.epochs=100", "sample.batch=1000000", "links.exclude=false",
                      "links.filter=true"],
        "256 links": ["train.epochs=20", "sample.batch=256"]},
    "peer": ["--batch", 0, "--epochs", 100, "--hidden", 128, "--fanouts=-1,-1", "--lr", 0.01,
             "--pairs", "--valid"]}


def drawn(batch, epochs, lr):
    return {"kinds": ("sage",), "metric": "mrr",
            "own": ["model.hidden=64", "sample.fanouts=[10,5]", f"train.lr={lr}"],
            "ways": {f"{batch} links": [f"train.epochs={epochs}", f"sample.batch={batch}"]},
            "peer": ["--batch", batch, "--epochs", epochs, "--hidden", 64, "--fanouts=10,5", "--lr",
                     lr, "--negatives", 1, "--disjoint"]}


SETS = {"cora": FULL, "citeseer": FULL,
        "amazon-computers": {**drawn(1024, 6, 0.01), "split": "10/1/2", "centred": True},
        "fb100-5": {**drawn(256, 10, 0.003), "split": "0.5%/0.2%/0.4%", "import": ["ogb", "ogb"]},
        **{f"lp-{s}": {**FULL, "of": s, "ways": {"all links": FULL["ways"]["all links"]}}
           for s in ("cora", "citeseer")}}


def call(log, *command):
    with open(log, "w") as out:
        subprocess.run([str(c) for c in command], check=True, cwd=ROOT, stdout=out, stderr=out)


def source(data, path, centred):
    """Writes a graph as a .npz that halognn imports. Rows of features add up to 1, or are centred:
    columns get mean 0, then rows get length 1."""
    def load(name):
        return numpy.load(data / "neutral" / f"{name}.npy")

    indptr, indices = load("feat_indptr"), load("feat_indices")
    n, degree = len(indptr) - 1, numpy.diff(indptr)
    width = json.loads((data / "neutral" / "meta.json").read_text())["feature_dim"]
    values = 1 / numpy.repeat(degree, degree)
    if centred:
        values = numpy.zeros((n, width), numpy.float32)
        values[numpy.repeat(numpy.arange(n), degree), indices] = 1
        values -= values.mean(0)
        values = (values / numpy.linalg.norm(values, axis=1, keepdims=True)).ravel()
        indptr, indices = numpy.arange(n + 1) * width, numpy.tile(numpy.arange(width), n)
    edges = load("edges")
    edges = numpy.concatenate([edges, edges[:, ::-1]])
    edges = edges[numpy.lexsort((edges[:, 1], edges[:, 0]))]
    numpy.savez(path, adj_shape=[n, n], adj_indices=edges[:, 1], attr_shape=[n, width],
                adj_data=numpy.ones(len(edges), numpy.float32), attr_indices=indices,
                adj_indptr=numpy.searchsorted(edges[:, 0], numpy.arange(n + 1)),
                attr_data=values.astype(numpy.float32),
                attr_indptr=indptr, labels=load("labels").clip(0))


def cut(a, name, seed):
    """Makes one part with the split of a seed, and the vertices among which links are ranked."""
    made = a.out / f"{name}-{seed}"
    data, log = made.with_suffix(".data"), made.with_suffix(".log")
    if (made / "meta.json").exists():
        return
    case = SETS[name]
    how, kind, split = ["npz", a.out / f"{case.get('of', name)}.npz"], "sparse", case["split"]
    if "import" in case:
        how = [case["import"][0], a.data / name / case["import"][1]]
    if "centred" in case:
        kind = "float32"

    def take(split, to):
        call(log, a.program, "import", "--format", how[0], "--in", how[1], "--undirected", "--task",
             "links", "--feature-type", kind, "--split-links", split, "--seed", seed, "--out",
             to.with_suffix(".data"), "--force")
        if to == made:  # before the parts, whose existence says that all is there
            numpy.save(made.with_suffix(".others.npy"), others(data, seed))
        call(log, a.program, "partition", "--data", to.with_suffix(".data"), "--parts", 1,
             "--method", "random", "--out", to)

    if "of" in case:
        neutral, split = a.data / case["of"] / "neutral", made.with_suffix(".split")
        call(log, a.python, ROOT / "profiling/lab/peers/pyg_split.py", neutral / "edges.npy",
             "--vertices", len(numpy.load(neutral / "labels.npy")), "--seed", seed, "--out", split)
        take(split / "test", made.with_name(f"{made.name}-test"))
    take(split, made)


def others(data, seed):
    """A line for each validation and test link: source, target, vertices without a link with the
    source."""
    def load(n):
        return numpy.load(data / f"{n}.npy").astype(numpy.int64)

    indptr, judged = load("indptr"), numpy.concatenate([load("links/valid"), load("links/test")])
    n, more = len(indptr) - 1, {}
    for u, v in numpy.concatenate([judged, judged[:, ::-1]]):
        more.setdefault(u, []).append(v)
    indices, draw = load("indices"), numpy.random.default_rng(seed)
    lines = []
    for u, v in judged:
        known = numpy.concatenate([indices[indptr[u]:indptr[u + 1]], more[u], [u]])
        found = numpy.empty(0, numpy.int64)
        while len(found) < JUDGED:
            drawn = draw.integers(n, size=2 * JUDGED)
            found = numpy.concatenate([found, drawn[~numpy.isin(drawn, known)]])
            found = found[numpy.sort(numpy.unique(found, return_index=True)[1])]
        lines.append([u, v, *found[:JUDGED]])
    return numpy.array(lines, numpy.int32)


def train(a, name, kind, way, seed):
    """Trains once; returns the metrics of the test links."""
    run, case = a.out / "-".join([name, kind, way.split()[0], *(s.replace("/", "_") for s in a.own),
                              str(seed)]), SETS[name]
    if not (run / "summary.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        sets = [f"data.parts={a.out}/{name}-{seed}", f"run.dir={run}", f"model.kind={kind}",
                f"links.eval_file={a.out}/{name}-{seed}.others.npy", f"train.seed={seed}",
                f"train.metric={case['metric']}", "model.dropout=0", "links.width=64",
                "cache.policy=none", "compute.threads=1", "pipeline.workers=1",
                "links.negatives=uniform:1", "links.loss=cross-entropy", *case["own"],
                *case["ways"][way], *a.own]
        if kind == "gcn":
            sets += ["model.gcn_norm=both"]
        call(f"{run}.log", a.program, "train", "--config", a.out / "config.yaml",
             *(w for s in sets for w in ("--set", s)))
    if "of" not in case:
        return json.loads((run / "summary.json").read_text())["test_links"]
    scores = run / "judged.npy"
    if not scores.exists():
        stem = a.out / f"{name}-{seed}"
        call(run / "judged.log", a.program, "infer", "--run", run, "--parts", f"{stem}-test",
             "--links", f"{stem}.split/judged.npy", "--set", "links.eval_file=", "--out", scores)
    return areas(*numpy.split(numpy.load(scores), 2))


def areas(links, others):
    """Metrics of the scores of links and of other pairs."""
    def below(scores, side="left"):
        return numpy.searchsorted(numpy.sort(scores), links, side)

    # pairs whose score is no lower than a link's
    true, false = len(links) - below(links), len(others) - below(others)
    return {"auc": (below(others) + below(others, "right")).mean() / 2 / len(others),
            "average_precision": (true / (true + false)).mean()}


def reference(a, name, kind):
    """Runs lp.py for all seeds."""
    log = a.out / f"{name}-{kind}.log"
    if not log.exists() or len(re.findall(r"^\d+ \(", log.read_text(), re.M)) < a.seeds:
        call(log, a.python, a.data.parent / "peers/reference/lp.py", SETS[name]["of"], kind,
             a.seeds)


def peer(a, name, kind, seed):
    """Trains with PyTorch Geometric; returns the same metrics."""
    case = SETS[name]
    if "of" in case:
        log = (a.out / f"{name}-{kind}.log").read_text()
        words = re.search(rf"^{seed} \((.*), (.*)\)", log, re.M)
        return {"auc": float(words[1]), "average_precision": float(words[2])}
    log = a.out / f"{name}-{kind}-pyg-{seed}.log"
    if not log.exists() or "\ntest " not in log.read_text():
        stem = a.out / f"{name}-{seed}"
        call(log, a.python, ROOT / "profiling/lab/peers/pyg_links.py", f"{stem}.data", "--kind",
             kind, "--others", f"{stem}.others.npy", "--metric", case["metric"], "--threads", 1, "--seed",
             seed, *case["peer"])
    words = log.read_text().split("\ntest ")[1].split()
    return dict(zip(words[::2], map(float, words[1::2])))


def figures(values, sign=""):
    """The mean and its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):{sign}.2f} +- {error:.2f}"


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "run/links")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--jobs", type=int, default=1, help="runs at a time, each on one thread")
    p.add_argument("--sets", default="cora,citeseer", help="of " + ", ".join(SETS))
    p.add_argument("--kinds", default="gcn,sage", help="of models, as far as the set has them")
    p.add_argument("--ways", default="all,256,1024", help="of halognn, as far as the set has them")
    p.add_argument("--own", action="append", default=[], metavar="KEY=VALUE",
                   help="another setting of halognn")
    p.add_argument("--python", type=pathlib.Path, default=ROOT / "build/peers/bin/python",
                   help="a Python with PyTorch Geometric")
    p.add_argument("--program", default=os.environ.get("HALOGNN", ROOT / "bin/halognn"))
    a = p.parse_args()
    a.data, a.out = a.data.resolve(), a.out.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "config.yaml").write_text("model: {layers: 2}\n")
    sets, jobs = a.sets.split(","), []
    kinds = {s: [k for k in SETS[s]["kinds"] if k in a.kinds.split(",")] for s in sets}
    for name in sets:  # before several threads read them
        of = SETS[name].get("of", name)
        if "import" not in SETS[name] and not (a.out / f"{of}.npz").exists():
            source(a.data / of, a.out / f"{of}.npz", "centred" in SETS[name])
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(lambda of: cut(a, *of), itertools.product(sets, range(a.seeds))))
        list(pool.map(lambda of: reference(a, *of),
                      [(s, k) for s in sets if "of" in SETS[s] for k in kinds[s]]))
        for seed, name in itertools.product(range(a.seeds), sets):
            for kind in kinds[name]:
                jobs.append(((name, kind, ""), pool.submit(peer, a, name, kind, seed)))
                for way in SETS[name]["ways"]:
                    if way.split()[0] not in a.ways.split(","):
                        continue
                    jobs.append(((name, kind, way),
                                 pool.submit(train, a, name, kind, way, seed)))
    found = {}
    for row, job in jobs:
        found.setdefault(row, []).append(job.result())
    print("| data set | model | | seeds | "
          + " | ".join(f"{m} | difference" for m in METRICS.values()) + " |")
    print("|---|---|---|" + "--:|" * (1 + 2 * len(METRICS)))
    for (name, kind, way), runs in found.items():
        other = "lp.py" if "of" in SETS[name] else "PyTorch Geometric"
        row = [name, f"`{kind}`", ", ".join(["halognn", way, *a.own]) if way else other,
               str(len(runs))]
        for metric in METRICS:
            if metric not in runs[0]:
                row += ["", ""]
                continue
            ours, theirs = ([100 * r[metric] for r in found[name, kind, w]] for w in (way, ""))
            row += [figures(ours), way and figures([o - t for o, t in zip(ours, theirs)], "+")]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
