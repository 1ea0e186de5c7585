"""Accuracy of models with the layers of PyTorch Geometric, with the settings of
inputs/reference.yaml.

    pyg_accuracy.py DATASET --kind gcn --epochs 30 --lr 0.01 --seed 0

trains on sampled blocks (neighbours of a vertex drawn by DGL, without replacement), evaluates with
all neighbours every --every epochs, and prints the test accuracy of the epoch with the best
validation.
"""

import commandline

ARGUMENTS = commandline.parse(
    "PyTorch Geometric: accuracy", ["dgl", "torch", "torch_geometric"], kind={"default": "sage"},
    lr={"type": float, "default": 0.003}, seed={"type": int, "default": 0},
    every={"type": int, "default": 1}, jumping={"action": "store_true"})

import dgl
import numpy
import torch
import torch.nn.functional as functional
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv

import graph

CHUNK = 200_000  # edges of a chunk of full evaluation


def convolution(kind, i, o, hidden, last):
    if kind.startswith("sage"):
        return SAGEConv(i, o, aggr="max" if kind == "sage-max" else "mean")
    if kind == "gcn":
        return GCNConv(i, o, normalize=False)
    if kind == "gin":
        return GINConv(torch.nn.Sequential(torch.nn.Linear(i, hidden), torch.nn.ReLU(),
                                           torch.nn.Linear(hidden, o)), train_eps=True)
    attention = GATv2Conv if kind == "gatv2" else GATConv
    return attention(i, o if last else o // 2, heads=2, concat=not last, add_self_loops=False)


class Model(torch.nn.Module):
    """Two or more layers with ReLU and dropout between them. With jumping knowledge all layers are
    hidden, and a linear map reads their rows side by side."""

    def __init__(self, kind, features, hidden, classes, layers, jumping):
        super().__init__()
        self.kind = kind
        width = [features] + [hidden] * layers
        if not jumping:
            width[-1] = classes
        self.convs = torch.nn.ModuleList(
            convolution(kind, width[l], width[l + 1], hidden, l == layers - 1 and not jumping)
            for l in range(layers))
        self.lin = torch.nn.Linear(hidden * layers, classes) if jumping else None

    def layer(self, l, edges, sources, x):
        """The output of layer l for the first vertices of a block, by edges (source, target)."""
        n = sources[1]
        if self.kind in ("gcn", "gat", "gatv2"):  # a vertex is one of its own neighbours
            own = torch.arange(n)
            edges = torch.stack([torch.cat([edges[0], own]), torch.cat([edges[1], own])])
        if self.kind == "gcn":
            degree = torch.bincount(edges[1], minlength=n).float()
            y = self.convs[l](x, edges, 1 / degree[edges[1]])[:n]
        else:
            y = self.convs[l]((x, x[:n]), edges)
        if self.lin is None and l == len(self.convs) - 1:
            return y
        return functional.dropout(functional.relu(y), 0.5, self.training)

    def forward(self, blocks, x):
        rows = []
        for l, b in enumerate(blocks):
            x = self.layer(l, torch.stack(b.edges()), (b.num_src_nodes(), b.num_dst_nodes()), x)
            rows.append(x)
        if self.lin is None:
            return x
        return self.lin(torch.cat([r[: len(x)] for r in rows], dim=1))

    @torch.no_grad()
    def everywhere(self, g, indptr, x):
        """The logits of all vertices, layer by layer with all neighbours."""
        rows, n = [], g.num_nodes()
        for l in range(len(self.convs)):
            out, lo = [], 0
            while lo < n:
                hi = int(numpy.searchsorted(indptr, indptr[lo] + CHUNK, side="right")) - 1
                hi = min(n, max(lo + 1, hi))
                part = torch.arange(lo, hi)
                b = dgl.to_block(dgl.in_subgraph(g, part), part)
                edges = torch.stack(b.edges())
                h = x[b.srcdata[dgl.NID]]
                out.append(self.layer(l, edges, (b.num_src_nodes(), hi - lo), h))
                lo = hi
            x = torch.cat(out)
            rows.append(x)
        return x if self.lin is None else self.lin(torch.cat(rows, dim=1))


def main():
    a = ARGUMENTS
    torch.manual_seed(a.seed)
    dgl.seed(a.seed)
    torch.set_num_threads(a.threads)
    data = graph.Dataset(a.data)
    valid, test = (torch.from_numpy(numpy.load(f"{a.data}/{s}.npy").astype(numpy.int64))
                   for s in ("valid", "test"))
    g = dgl.graph(("csc", (data.indptr, data.indices.long(), torch.tensor([], dtype=torch.int64))),
                  num_nodes=data.vertices)
    sampler = dgl.dataloading.NeighborSampler(a.fanouts[::-1])
    model = Model(a.kind, data.features.shape[1], a.hidden, data.classes, len(a.fanouts), a.jumping)
    optimizer = torch.optim.Adam(model.parameters(), lr=a.lr)
    best, at_best = -1.0, 0.0
    steps = -(-len(data.train) // a.batch)
    for epoch in range(1, a.epochs + 1):
        model.train()
        for seeds in torch.tensor_split(data.train[torch.randperm(len(data.train))], steps):
            frontier, _, blocks = sampler.sample_blocks(g, seeds)
            loss = functional.cross_entropy(model(blocks, data.features[frontier]),
                                            data.labels[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % a.every == 0 or epoch == a.epochs:
            model.eval()
            right = model.everywhere(g, data.indptr.numpy(), data.features).argmax(1) == data.labels
            if (v := right[valid].float().mean().item()) > best:
                best, at_best = v, right[test].float().mean().item()
    print(f"test accuracy {at_best:.6f}")


if __name__ == "__main__":
    main()
