"""A halognn DATASET of several relations as torch tensors and as DGL's graph, and the model that
dgl_typed.py and distdgl_train.py train on it."""

import json

import dgl
import dgl.nn
import numpy
import torch


class Dataset:
    """indptr and indices of the in-edges of all vertices, type by type, kinds [M] the relation of
    each edge, start [T+1], counts and features of each type; labels and train of the labelled type,
    with ids within it. Types without features get width random columns, and no rows if width is
    0."""

    def __init__(self, path, width=0):
        with open(f"{path}/meta.json", encoding="utf8") as f:
            m = json.load(f)
            m.update(m.get("schema", {}))
        load = lambda name: torch.from_numpy(numpy.load(f"{path}/{name}.npy"))
        self.types, self.labelled, self.classes = m["types"], m["label_type"], m["classes"]
        self.relations = [(r["source"], r["name"], r["target"]) for r in m["relations"]]
        counts = [t["vertices"] for t in m["tables"]]
        self.counts = dict(zip(self.types, counts))
        self.start = torch.tensor([0, *counts]).cumsum(0)
        columns, self.indices = load("columns"), load("indices")
        sizes, at, ends = columns.diff(), 0, [torch.zeros(1, dtype=torch.int64)]
        self.kinds = torch.empty(len(self.indices), dtype=torch.uint8)
        for kind, n in zip(self.types, counts):
            into = [i for i, r in enumerate(self.relations) if r[2] == kind]
            last = at + n * len(into)
            of = torch.tensor(into, dtype=torch.uint8).repeat(n)
            self.kinds[columns[at]:columns[last]] = of.repeat_interleave(sizes[at:last])
            every = max(1, len(into))  # the columns of vertex v + 1 begin at + every * (v + 1)
            ends.append(columns[at + every:last + 1:every] if into else columns[at].repeat(n))
            at = last
        self.indptr = torch.cat(ends)
        self.features = {}
        for kind, n, t in zip(self.types, counts, m["tables"]):
            if t.get("features"):
                self.features[kind] = load(f"features.{kind}").float()
            elif width:
                self.features[kind] = torch.randn(n, width)
        i = self.types.index(self.labelled)
        self.labels = load("labels").long()[self.start[i]:self.start[i + 1]]
        self.train = load("train").long() - self.start[i]

    def heterograph(self):
        """The DGL graph, with vertex data feat, of types with features, and label."""
        targets = torch.arange(len(self.indptr) - 1).repeat_interleave(self.indptr.diff())
        edges = {}
        for i, r in enumerate(self.relations):
            of = self.kinds == i
            edges[r] = (self.indices[of].long() - self.start[self.types.index(r[0])],
                        targets[of] - self.start[self.types.index(r[2])])
        g = dgl.heterograph(edges, self.counts)
        g.ndata["feat"] = self.features
        g.nodes[self.labelled].data["label"] = self.labels
        return g


class Model(torch.nn.Module):
    """A linear map of each type from its width, then layers with ReLU and dropout between them,
    with a convolution for each relation, whose results are added. In R-GCN a vertex's own row has
    only one map."""

    def __init__(self, kind, widths, relations, labelled, hidden, classes, layers):
        super().__init__()
        self.labelled, self.rgcn = labelled, kind == "rgcn"
        self.project = torch.nn.ModuleDict(
            {kind: torch.nn.Linear(width, hidden) for kind, width in widths.items()})
        widths = [hidden] * layers + [classes]
        self.layers, self.roots = torch.nn.ModuleList(), torch.nn.ModuleList()
        for i, o in zip(widths, widths[1:]):
            conv = (lambda: dgl.nn.GraphConv(i, o, norm="right", bias=False,
                                             allow_zero_in_degree=True)) if self.rgcn else (
                    lambda: dgl.nn.SAGEConv(i, o, "mean"))
            self.layers.append(dgl.nn.HeteroGraphConv({r: conv() for r in relations}, "sum"))
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
