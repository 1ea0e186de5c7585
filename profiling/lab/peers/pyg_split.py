"""The split of links that PyTorch Geometric's RandomLinkSplit makes in lp.py, a program that
compares GNNs on links, for one of its seeds.

    pyg_split.py EDGES.npy --vertices N --seed S --out DIR

EDGES has each pair once. Writes DIR/valid.npy and test.npy, [n, 2]; judged.npy, the test links and
as many pairs without an edge; and DIR/test with the split that leaves the validation links in the
graph.
"""

import argparse
import pathlib
import random

import commandline


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("edges", type=pathlib.Path)
    p.add_argument("--vertices", type=int, required=True)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=pathlib.Path, required=True)
    a = p.parse_args()
    commandline.require(["torch", "torch_geometric"])
    return a


ARGUMENTS = arguments()

import numpy
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit


def main():
    a = ARGUMENTS
    e = torch.from_numpy(numpy.load(a.edges).T.astype(numpy.int64))
    torch.manual_seed(a.seed)
    numpy.random.seed(a.seed)
    random.seed(a.seed)  # negative pairs are drawn by it
    split = RandomLinkSplit(num_val=.05, num_test=.1, is_undirected=True,
                            add_negative_train_samples=False)
    _, valid, test = split(Data(edge_index=torch.cat([e, e.flip(0)], 1), num_nodes=a.vertices))
    (a.out / "test").mkdir(parents=True, exist_ok=True)
    pairs = [numpy.ascontiguousarray(d.edge_label_index.T.numpy()) for d in (valid, test)]
    links = [p[d.edge_label.numpy() == 1] for p, d in zip(pairs, (valid, test))]
    numpy.save(a.out / "valid.npy", links[0])
    numpy.save(a.out / "test.npy", links[1])
    if len(pairs[1]) != 2 * len(links[1]):
        raise SystemExit(f"{len(links[1])} test links, {len(pairs[1])} pairs: the graph is too dense")
    numpy.save(a.out / "judged.npy", pairs[1])
    numpy.save(a.out / "test/valid.npy", links[1][:0])
    numpy.save(a.out / "test/test.npy", links[1])


if __name__ == "__main__":
    main()
