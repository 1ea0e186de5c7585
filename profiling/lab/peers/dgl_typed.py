"""DGL in one process on a graph of several relations: R-GCN or R-SAGE (typed.py) on minibatches
of GraphBolt or of NeighborSampler."""

import commandline

ARGUMENTS = commandline.parse(
    "DGL, one process, typed graph", ["dgl", "torch"],
    how=dict(choices=["neighbor", "graphbolt"], default="graphbolt"),
    kind=dict(choices=["rgcn", "sage"], default="rgcn"),
    width=dict(type=int, default=16, help="random columns of types that have no features"))

import dgl
import dgl.graphbolt as graphbolt
import torch

import graph
import typed


def graph_bolt(d, a):
    g = graphbolt.fused_csc_sampling_graph(
        d.indptr, d.indices, node_type_offset=d.start, type_per_edge=d.kinds,
        node_type_to_id={t: i for i, t in enumerate(d.types)},
        edge_type_to_id={":".join(r): i for i, r in enumerate(d.relations)})
    rows = graphbolt.BasicFeatureStore({("node", kind, "feat"): graphbolt.TorchBasedFeature(x)
                                        for kind, x in d.features.items()})
    seeds = graphbolt.ItemSetDict({d.labelled: graphbolt.ItemSet(
        (d.train.int(), d.labels[d.train]), names=("seed_nodes", "labels"))})
    pipe = graphbolt.ItemSampler(seeds, batch_size=a.batch, shuffle=True)
    pipe = pipe.sample_neighbor(g, [torch.tensor([f] * len(d.relations)) for f in a.fanouts[::-1]])
    pipe = pipe.fetch_feature(rows, node_feature_keys={kind: ["feat"] for kind in d.types})
    loader = graphbolt.DataLoader(pipe, num_workers=a.workers)

    def batches():
        for m in loader:
            x = {kind: m.node_features[kind, "feat"] for kind in d.types
                 if (kind, "feat") in m.node_features}
            yield m.blocks, x, m.labels[d.labelled]

    return batches


def neighbor_sampler(d, a):
    g = d.heterograph().formats("csc")
    sampler = dgl.dataloading.NeighborSampler(a.fanouts[::-1], prefetch_node_feats={
        kind: ["feat"] for kind in d.types}, prefetch_labels={d.labelled: ["label"]})
    loader = dgl.dataloading.DataLoader(g, {d.labelled: d.train}, sampler, batch_size=a.batch,
                                        shuffle=True, num_workers=a.workers)

    def batches():
        for _, _, blocks in loader:
            yield blocks, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"][d.labelled]

    return batches


def main():
    a = ARGUMENTS
    graph.begin(a)
    data = typed.Dataset(a.data, a.width)
    batches = (neighbor_sampler if a.how == "neighbor" else graph_bolt)(data, a)
    name = f"dgl-typed-{a.kind} {a.how} workers={a.workers}"
    widths = {kind: x.shape[1] for kind, x in data.features.items()}
    model = typed.Model(a.kind, widths, data.relations, data.labelled, a.hidden, data.classes,
                        len(a.fanouts))
    graph.train(name, model, batches, a.epochs, a.bf16)


if __name__ == "__main__":
    main()
