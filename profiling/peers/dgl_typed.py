"""DGL in one process on a graph of several relations: R-GCN or R-SAGE, a convolution for each
relation whose results are added, on minibatches of GraphBolt or of NeighborSampler."""

import commandline

ARGUMENTS = commandline.parse(
    "DGL, one process, typed graph", ["dgl", "torch"],
    how=dict(choices=["neighbor", "graphbolt"], default="graphbolt"),
    kind=dict(choices=["rgcn", "sage"], default="rgcn"),
    width=dict(type=int, default=16, help="random columns of types that have no features"))

import json

import dgl
import dgl.graphbolt as graphbolt
import dgl.nn
import numpy
import torch

import graph


class Dataset:
    """indptr and indices of the in-edges of all vertices, type by type, kinds [M] the relation of
    each edge, start [T+1], features of each type, labels and train of the labelled type, numbered
    in it."""

    def __init__(self, path, width):
        with open(f"{path}/meta.json", encoding="utf8") as f:
            m = json.load(f)
            m.update(m.get("schema", {}))
        load = lambda name: torch.from_numpy(numpy.load(f"{path}/{name}.npy"))
        self.types, self.labelled, self.classes = m["types"], m["label_type"], m["classes"]
        self.relations = [(r["source"], r["name"], r["target"]) for r in m["relations"]]
        counts = [t["vertices"] for t in m["tables"]]
        self.start = torch.tensor([0, *counts]).cumsum(0)
        columns, self.indices = load("columns"), load("indices")
        sizes, at, ends = columns.diff(), 0, [torch.zeros(1, dtype=torch.int64)]
        self.kinds = torch.empty(len(self.indices), dtype=torch.uint8)
        for kind, n in zip(self.types, counts):
            into = [i for i, r in enumerate(self.relations) if r[2] == kind]
            last = at + n * len(into)
            of = torch.tensor(into, dtype=torch.uint8).repeat(n)
            self.kinds[columns[at]:columns[last]] = of.repeat_interleave(sizes[at:last])
            every = max(1, len(into))  # column at + every * (v + 1) begins the next vertex
            ends.append(columns[at + every:last + 1:every] if into else columns[at].repeat(n))
            at = last
        self.indptr = torch.cat(ends)
        self.features = {}
        for kind, n, t in zip(self.types, counts, m["tables"]):
            self.features[kind] = (load(f"features.{kind}").float() if t.get("features")
                                   else torch.randn(n, width))
        i = self.types.index(self.labelled)
        self.labels = load("labels").long()[self.start[i]:self.start[i + 1]]
        self.train = load("train").long() - self.start[i]


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
    targets = torch.arange(len(d.indptr) - 1).repeat_interleave(d.indptr.diff())
    edges = {}
    for i, r in enumerate(d.relations):
        of = d.kinds == i
        edges[r] = (d.indices[of].long() - d.start[d.types.index(r[0])],
                    targets[of] - d.start[d.types.index(r[2])])
    g = dgl.heterograph(edges, {kind: len(x) for kind, x in d.features.items()})
    g.ndata["feat"], g.nodes[d.labelled].data["label"] = d.features, d.labels
    g = g.formats("csc")
    sampler = dgl.dataloading.NeighborSampler(a.fanouts[::-1], prefetch_node_feats={
        kind: ["feat"] for kind in d.types}, prefetch_labels={d.labelled: ["label"]})
    loader = dgl.dataloading.DataLoader(g, {d.labelled: d.train}, sampler, batch_size=a.batch,
                                        shuffle=True, num_workers=a.workers)

    def batches():
        for _, _, blocks in loader:
            yield blocks, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"][d.labelled]

    return batches


class Model(torch.nn.Module):
    """A linear map of each type, then convolutions with ReLU and dropout between them. R-GCN has
    one map for a vertex's own row and no others."""

    def __init__(self, d, a):
        super().__init__()
        self.labelled, self.rgcn = d.labelled, a.kind == "rgcn"
        self.project = torch.nn.ModuleDict(
            {kind: torch.nn.Linear(x.shape[1], a.hidden) for kind, x in d.features.items()})
        widths = [a.hidden] * len(a.fanouts) + [d.classes]
        self.layers, self.roots = torch.nn.ModuleList(), torch.nn.ModuleList()
        for i, o in zip(widths, widths[1:]):
            conv = (lambda: dgl.nn.GraphConv(i, o, norm="right", bias=False,
                                             allow_zero_in_degree=True)) if self.rgcn else (
                    lambda: dgl.nn.SAGEConv(i, o, "mean"))
            self.layers.append(dgl.nn.HeteroGraphConv({r: conv() for r in d.relations}, "sum"))
            self.roots.append(torch.nn.Linear(i, o) if self.rgcn else torch.nn.Identity())

    def forward(self, blocks, x):
        h = {kind: self.project[kind](rows) for kind, rows in x.items() if len(rows)}
        for i, (layer, root, block) in enumerate(zip(self.layers, self.roots, blocks)):
            own = {kind: rows[:block.num_dst_nodes(kind)] for kind, rows in h.items()}
            y = layer(block, (h, own))
            if self.rgcn:
                y = {kind: root(rows) + y.get(kind, 0) for kind, rows in own.items()}
            if i < len(blocks) - 1:
                y = {kind: torch.dropout(x.relu(), 0.5, self.training) for kind, x in y.items()}
            h = y
        return h[self.labelled]


def main():
    a = ARGUMENTS
    graph.begin(a)
    data = Dataset(a.data, a.width)
    batches = (neighbor_sampler if a.how == "neighbor" else graph_bolt)(data, a)
    name = f"dgl-typed-{a.kind} {a.how} workers={a.workers}"
    graph.train(name, Model(data, a), batches, a.epochs, a.bf16)


if __name__ == "__main__":
    main()
