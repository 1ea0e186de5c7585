"""DGL's GraphBolt in one process: GraphSAGE that predicts links by inner products. A
minibatch's own links are out of its graph, unless --keep."""

import functools

import commandline

ARGUMENTS = commandline.parse(
    "GraphBolt, links", ["dgl", "torch"],
    negatives=dict(type=int, default=4, help="of a link"),
    keep=dict(action="store_true", help="do not remove the minibatch's links after sampling"))

import dgl.graphbolt as graphbolt
import dgl.nn
import numpy
import torch
import torch.nn.functional as functional

import graph


def main():
    a = ARGUMENTS
    graph.begin(a)

    def array(name):
        return torch.from_numpy(numpy.load(f"{a.data}/{name}.npy"))

    features = array("features").float()
    links = array("links/train")
    g = graphbolt.fused_csc_sampling_graph(array("indptr"), array("indices"))
    rows = graphbolt.BasicFeatureStore(
        {("node", None, "feat"): graphbolt.TorchBasedFeature(features)})
    pipe = graphbolt.ItemSampler(graphbolt.ItemSet(links, names="node_pairs"),
                                 batch_size=a.batch, shuffle=True)
    pipe = pipe.sample_uniform_negative(g, a.negatives).sample_neighbor(g, a.fanouts[::-1])
    if not a.keep:
        pipe = pipe.transform(functools.partial(graphbolt.exclude_seed_edges,
                                                include_reverse_edges=True))
    pipe = pipe.fetch_feature(rows, node_feature_keys=["feat"])
    loader = graphbolt.DataLoader(pipe, num_workers=a.workers)
    model = graph.Model(lambda i, o, _: dgl.nn.SAGEConv(i, o, "mean"), features.shape[1], a.hidden,
                        a.hidden, len(a.fanouts))

    def batches():
        for m in loader:
            yield m.blocks, m.node_features["feat"], m.node_pairs_with_labels

    def loss(model, edges, rows, pairs, bf16):
        (source, target), labels = pairs
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            z = model(edges, rows)
        scores = (z[source] * z[target]).sum(1).float()
        return functional.binary_cross_entropy_with_logits(scores, labels.float())

    graph.loss_of = loss
    graph.train(f"graphbolt links workers={a.workers}", model, batches, a.epochs, a.bf16)


if __name__ == "__main__":
    main()
