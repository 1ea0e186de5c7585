"""Real graphs of several relations as halognn DATASETs: aifb, dblp and acm.

    typed_data.py [--bare] DATA OUT

reads DATA, a directory with the files of one of these graphs and with its name. Vertices without
features get a 1 in a column of their own, which turns the linear map of their type into a table of
learned rows. With --bare no vertex has features. Needs NumPy, SciPy and the Python package halognn.
"""

import argparse
import csv
import gzip
import os
import re

import commandline


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", help="directory with the files of aifb, dblp or acm, by whose name it is known")
    p.add_argument("out", help="halognn DATASET directory to make")
    p.add_argument("--bare", action="store_true", help="leave out all features, for model.learned")
    a = p.parse_args()
    commandline.require(["numpy", "scipy"])
    return a


ARGUMENTS = arguments()  # before the imports, so that --help works without them

import numpy as np
import scipy.sparse

import halognn

# For each graph the labelled type and, for each relation, the types of the two columns of its file.
PAIRS = {
    "dblp": ("a", {"pa": "pa", "pt": "pt", "pc": "pc"}),
    "acm": ("p", {"pa": "pa", "ps": "ps"}),
}
TRIPLE = re.compile(r"^(\S+)\s+(\S+)\s+(.*?)\s*\.\s*$")


def pairs(path, name, split="60"):
    """Reads pairs from text files, features from files of SciPy or NumPy, and a split from files of
    ids."""
    labelled, relations = PAIRS[name]
    edges = {(s, f"to_{t}", t): np.loadtxt(f"{path}/{file}.txt", dtype=np.int64).T.copy()
             for file, (s, t) in relations.items()}
    labels = np.load(f"{path}/labels.npy").astype(np.int64)
    nodes = {}
    for kind in {t for relation in relations.values() for t in relation}:
        n = 1 + max(e[i].max() for (s, _, t), e in edges.items() for i, of in enumerate((s, t)) if of == kind)
        file = f"{path}/{kind}_feat.npz"
        x = np.eye(n, dtype=np.float32)
        if os.path.exists(file):
            x = np.load(file)
            x = x if isinstance(x, np.ndarray) else scipy.sparse.load_npz(file).toarray()
        nodes[kind] = halognn.Graph(halognn.graph.NO_EDGES, len(x),
                                    x=None if ARGUMENTS.bare else x.astype(np.float32))
    nodes[labelled].y = labels
    for mask, file in ("train_mask", "train"), ("val_mask", "val"), ("test_mask", "test"):
        nodes[labelled].masks[mask] = np.isin(np.arange(len(labels)), np.load(f"{path}/{file}_{split}.npy"))
    return halognn.TypedGraph(nodes, edges, reverse=True)


def triples(path, name, node="person", label="label_affiliation"):
    """Reads triples of RDF, where each predicate is a relation among entities of one type, and
    tables of labels. The validation vertices are the test vertices, as no epoch is chosen."""
    with gzip.open(f"{path}/{name}_stripped.nt.gz", "rt", encoding="utf8") as f:
        found = [TRIPLE.match(line).groups() for line in f if line.strip()]
    ids = {word: i for i, word in enumerate(sorted({w for s, _, o in found for w in (s, o)}))}
    edges = {}
    for s, p, o in found:
        edges.setdefault(p, []).append((ids[s], ids[o]))
    y, masks = np.full(len(ids), -1), {}
    classes = {}
    for mask, file in ("train_mask", "trainingSet"), ("test_mask", "testSet"):
        masks[mask] = np.zeros(len(ids), dtype=bool)
        with open(f"{path}/{file}.tsv", encoding="utf8") as f:
            for row in csv.DictReader(f, delimiter="\t"):
                i = ids[f"<{row[node]}>"]
                y[i], masks[mask][i] = classes.setdefault(row[label], len(classes)), True
    masks["val_mask"] = np.zeros(len(ids), dtype=bool)
    x = None if ARGUMENTS.bare else np.eye(len(ids), dtype=np.float32)
    graph = halognn.Graph(halognn.graph.NO_EDGES, len(ids), x, y, masks)
    relations = {("entity", f"r{i}", "entity"): np.array(e).T.copy()
                 for i, (_, e) in enumerate(sorted(edges.items()))}
    return halognn.TypedGraph({"entity": graph}, relations, reverse=True)


def main():
    path, out = ARGUMENTS.data, ARGUMENTS.out
    name = os.path.basename(os.path.normpath(path))
    make = pairs if name in PAIRS else triples
    halognn.write_dataset(out, make(path, name), feature_type="float16")


if __name__ == "__main__":
    main()
