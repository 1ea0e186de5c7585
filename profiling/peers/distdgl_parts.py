"""Partitions a halognn DATASET for DistDGL: METIS, balanced in training vertices and edges."""

import argparse

import commandline


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("data")
    p.add_argument("parts", type=int)
    p.add_argument("out")
    a = p.parse_args()
    commandline.require(["dgl", "torch"])
    return a


ARGUMENTS = arguments()

import dgl
import torch

import graph


def main():
    a = ARGUMENTS
    data = graph.Dataset(a.data)
    none = torch.empty(0, dtype=torch.int64)
    g = dgl.graph(("csc", (data.indptr, data.indices.long(), none)), num_nodes=data.vertices)
    train = torch.zeros(data.vertices, dtype=torch.bool)
    train[data.train] = True
    g.ndata["feat"], g.ndata["label"], g.ndata["train_mask"] = data.features, data.labels, train
    dgl.distributed.partition_graph(g, "g", a.parts, a.out, num_hops=1, part_method="metis",
                                    balance_ntypes=train, balance_edges=True)


if __name__ == "__main__":
    main()
