"""Partitions a halognn DATASET for DistDGL: METIS, balanced in training vertices, vertices of each
type and edges."""

import argparse
import os

import commandline


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("data")
    p.add_argument("parts", type=int)
    p.add_argument("out")
    p.add_argument("--graphbolt", action="store_true", help="for sampling by GraphBolt")
    a = p.parse_args()
    commandline.require(["dgl", "torch"])
    return a


ARGUMENTS = arguments()

import dgl
import torch

import graph
import typed


def homogeneous(path):
    """The graph of a DATASET of one vertex type, and that type."""
    data = graph.Dataset(path)
    none = torch.empty(0, dtype=torch.int64)
    g = dgl.graph(("csc", (data.indptr, data.indices.long(), none)), num_nodes=data.vertices)
    g.ndata["feat"], g.ndata["label"] = data.features, data.labels
    return g, g.ntypes[0], data.train


def heterogeneous(path):
    data = typed.Dataset(path)
    return data.heterograph(), data.labelled, data.train


def main():
    a = ARGUMENTS
    of_types = os.path.exists(f"{a.data}/columns.npy")
    g, labelled, seeds = (heterogeneous if of_types else homogeneous)(a.data)
    train = torch.zeros(g.num_nodes(labelled), dtype=torch.bool)
    train[seeds] = True
    g.nodes[labelled].data["train_mask"] = train
    dgl.distributed.partition_graph(g, "g", a.parts, a.out, num_hops=1, part_method="metis",
                                    balance_ntypes={labelled: train}, balance_edges=True,
                                    use_graphbolt=a.graphbolt)


if __name__ == "__main__":
    main()
