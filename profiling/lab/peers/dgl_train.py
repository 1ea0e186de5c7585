"""DGL in one process: a model on minibatches of NeighborSampler or of GraphBolt."""

import commandline

ARGUMENTS = commandline.parse(
    "DGL, one process", ["dgl", "torch"],
    how=dict(choices=["neighbor", "graphbolt", "labor"], default="graphbolt",
             help="labor: GraphBolt by sample_layer_neighbor"),
    kind=dict(choices=["sage", "gcn", "gin", "gat", "gatv2"], default="sage", help="the model"))

import dgl
import dgl.graphbolt as graphbolt
import torch

import graph


def neighbor_sampler(data, a):
    """Minibatches of dgl.dataloading.NeighborSampler."""
    none = torch.empty(0, dtype=torch.int64)
    g = dgl.graph(("csc", (data.indptr, data.indices.long(), none)), num_nodes=data.vertices)
    g.ndata["feat"], g.ndata["label"] = data.features, data.labels
    g = g.formats("csc")
    sampler = dgl.dataloading.NeighborSampler(
        a.fanouts[::-1], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = dgl.dataloading.DataLoader(
        g, data.train, sampler, batch_size=a.batch, shuffle=True, num_workers=a.workers)

    def batches():
        for _, _, blocks in loader:
            yield blocks, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]

    def counts():
        order = data.train[torch.randperm(len(data.train))]
        for seeds in order.split(a.batch):
            yield sum(b.num_edges() for b in sampler.sample_blocks(g, seeds)[2])

    return batches, counts()


def graph_bolt(data, a):
    """Minibatches of dgl.graphbolt, by LABOR if a.how says so."""
    g = graphbolt.fused_csc_sampling_graph(data.indptr, data.indices)
    rows = graphbolt.BasicFeatureStore(
        {("node", None, "feat"): graphbolt.TorchBasedFeature(data.features)})
    seeds = graphbolt.ItemSet((data.train.int(), data.labels[data.train]),
                              names=("seed_nodes", "labels"))

    def draw():
        pipe = graphbolt.ItemSampler(seeds, batch_size=a.batch, shuffle=True)
        sample = pipe.sample_layer_neighbor if a.how == "labor" else pipe.sample_neighbor
        return sample(g, a.fanouts[::-1])

    pipe = draw()
    pipe = pipe.fetch_feature(rows, node_feature_keys=["feat"])
    loader = graphbolt.DataLoader(pipe, num_workers=a.workers)

    def batches():
        for m in loader:
            yield m.blocks, m.node_features["feat"], m.labels

    def counts():
        for m in draw():
            yield sum(len(s.sampled_csc.indices) for s in m.sampled_subgraphs)

    return batches, counts()


def main():
    a = ARGUMENTS
    graph.begin(a)
    data = graph.Dataset(a.data)
    name = f"dgl-{a.how} workers={a.workers}"
    batches, counts = (neighbor_sampler if a.how == "neighbor" else graph_bolt)(data, a)
    if a.sampler:
        graph.time_sampler(name, counts)
        return
    model = graph.Model(graph.layer_of(a.kind), data.features.shape[1], a.hidden,
                        data.classes, len(a.fanouts))
    graph.train(name, model, batches, a.epochs, a.bf16)


if __name__ == "__main__":
    main()
