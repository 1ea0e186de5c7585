#!/usr/bin/env python3
"""logits.py RUN DATASET LOGITS.npy: loads RUN/model.safetensors into plain PyTorch modules, computes the logits of all vertices of
DATASET, and holds those of `halognn infer --logits` against them: |difference| <= 1e-5 * max(1, |logit|).

The modules have the names of PyTorch Geometric's, whose models take the same tensors; this file needs torch and numpy alone. Where PyTorch
Geometric is installed, its own layers load the file too, and their logits are held to the same.
"""
import json
import sys

import numpy as np
import torch

try:
    import torch_geometric
except ImportError:
    torch_geometric = None


def load(path):
    """Returns the tensors and the metadata of a safetensors file."""
    with open(path, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    meta = header.pop("__metadata__")
    data = raw[8 + n :]
    tensors = {}
    for name, t in header.items():
        assert t["dtype"] == "F32", t
        lo, hi = t["data_offsets"]
        tensors[name] = torch.from_numpy(np.frombuffer(data[lo:hi], "<f4").reshape(t["shape"]).copy())
    return tensors, meta


def total(values, target, vertices):
    """The sum of the values of each vertex's edges."""
    return torch.zeros(vertices, dtype=values.dtype).index_add_(0, target, values)


class SAGEConv(torch.nn.Module):
    """mean (by the weights of edges) or maximum over the in-neighbours through lin_l, the vertex itself through lin_r."""

    def __init__(self, cols, out, aggr):
        super().__init__()
        self.aggr = aggr
        self.lin_l = torch.nn.Linear(cols, out)
        self.lin_r = torch.nn.Linear(cols, out, bias=False)

    def forward(self, x, source, target, weight):
        if self.aggr == "max":
            rows = torch.zeros_like(x).index_reduce_(0, target, x[source], "amax", include_self=False)
        else:
            weight = weight / total(weight, target, len(x))[target]
            rows = torch.zeros_like(x).index_add_(0, target, x[source] * weight[:, None])
        return self.lin_l(rows) + self.lin_r(x)


def with_self(x, source, target, weight):
    """Adds an edge of weight 1 from each vertex to itself."""
    own = torch.arange(len(x))
    return torch.cat([source, own]), torch.cat([target, own]), torch.cat([weight, torch.ones(len(x), dtype=weight.dtype)])


class GCNConv(torch.nn.Module):
    """GCNConv as it comes for gcn_norm "both"; for "right" a mean, which is normalize=False with edge weights."""

    def __init__(self, cols, out, norm):
        super().__init__()
        self.lin = torch.nn.Linear(cols, out, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out))
        self.norm = norm

    def forward(self, x, source, target, weight):
        source, target, weight = with_self(x, source, target, weight)
        degree = total(weight, target, len(x))
        weight = weight * (1 / degree[target] if self.norm == "right" else (degree[source] * degree[target]) ** -0.5)
        return self.lin(torch.zeros_like(x).index_add_(0, target, x[source] * weight[:, None])) + self.bias


class GINConv(torch.nn.Module):
    """GINConv(Sequential(Linear, ReLU, Linear), train_eps=True)."""

    def __init__(self, cols, hidden, out):
        super().__init__()
        self.nn = torch.nn.Sequential(torch.nn.Linear(cols, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, out))
        self.eps = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, source, target, weight):
        return self.nn(((1 + self.eps) * x).index_add(0, target, x[source] * weight[:, None]))


class GATConv(torch.nn.Module):
    """GATConv(heads=heads, concat=concat, negative_slope=slope)."""

    def __init__(self, cols, out, heads, concat, slope):
        super().__init__()
        self.lin = torch.nn.Linear(cols, heads * out, bias=False)
        self.att_src = torch.nn.Parameter(torch.zeros(1, heads, out))
        self.att_dst = torch.nn.Parameter(torch.zeros(1, heads, out))
        self.bias = torch.nn.Parameter(torch.zeros(heads * out if concat else out))
        self.heads, self.out, self.concat, self.slope = heads, out, concat, slope

    def forward(self, x, source, target, weight):
        source, target, _ = with_self(x, source, target, weight)
        z = self.lin(x).view(-1, self.heads, self.out)
        score = (z * self.att_src).sum(-1)[source] + (z * self.att_dst).sum(-1)[target]
        score = torch.nn.functional.leaky_relu(score, self.slope)
        return attend(z, score, source, target, self.concat) + self.bias


class GATv2Conv(torch.nn.Module):
    """GATv2Conv(heads=heads, concat=concat, negative_slope=slope)."""

    def __init__(self, cols, out, heads, concat, slope):
        super().__init__()
        self.lin_l = torch.nn.Linear(cols, heads * out)
        self.lin_r = torch.nn.Linear(cols, heads * out)
        self.att = torch.nn.Parameter(torch.zeros(1, heads, out))
        self.bias = torch.nn.Parameter(torch.zeros(heads * out if concat else out))
        self.heads, self.out, self.concat, self.slope = heads, out, concat, slope

    def forward(self, x, source, target, weight):
        source, target, _ = with_self(x, source, target, weight)
        left, right = (lin(x).view(-1, self.heads, self.out) for lin in (self.lin_l, self.lin_r))
        score = (torch.nn.functional.leaky_relu(left[source] + right[target], self.slope) * self.att).sum(-1)
        return attend(left, score, source, target, self.concat) + self.bias


def attend(z, score, source, target, concat):
    """The sums of the rows z of the sources by the softmax of the scores of edges and heads."""
    e = torch.exp(score)
    sums = torch.zeros(z.shape[:2], dtype=z.dtype).index_add_(0, target, e)
    y = torch.zeros_like(z).index_add_(0, target, z[source] * (e / sums[target])[:, :, None])
    return y.flatten(1) if concat else y.mean(1)


class Geometric:
    """The layers of PyTorch Geometric, called like those above; None where it has no such layer."""

    def __init__(self, meta):
        self.kind, self.norm = meta["kind"], meta["gcn_norm"]
        weighs = self.kind == "gcn" or meta["edge_weights"] != "true"
        self.has = torch_geometric is not None and weighs

    def SAGEConv(self, cols, out, aggr):
        return torch_geometric.nn.SAGEConv(cols, out, aggr=aggr)

    def GCNConv(self, cols, out, norm):
        return torch_geometric.nn.GCNConv(cols, out, normalize=norm == "both")

    def GINConv(self, cols, hidden, out):
        net = torch.nn.Sequential(torch.nn.Linear(cols, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, out))
        return torch_geometric.nn.GINConv(net, train_eps=True)

    def GATConv(self, cols, out, heads, concat, slope):
        return torch_geometric.nn.GATConv(cols, out, heads, concat, slope)

    def GATv2Conv(self, cols, out, heads, concat, slope):
        return torch_geometric.nn.GATv2Conv(cols, out, heads, concat, slope)

    def call(self, conv, x, source, target, weight):
        if self.kind == "gcn" and self.norm == "right":
            source, target, weight = with_self(x, source, target, weight)
            weight = weight / total(weight, target, len(x))[target]
        edges = torch.stack([source, target])
        return conv(x, edges, weight) if self.kind == "gcn" else conv(x, edges)


class Plain:
    """The layers of this file."""

    SAGEConv, GCNConv, GINConv, GATConv, GATv2Conv = SAGEConv, GCNConv, GINConv, GATConv, GATv2Conv

    def call(self, conv, x, source, target, weight):
        return conv(x, source, target, weight)


class BatchNorm(torch.nn.Module):
    """PyTorch Geometric's, which holds PyTorch's as module."""

    def __init__(self, width):
        super().__init__()
        self.module = torch.nn.BatchNorm1d(width)

    def forward(self, x):
        return self.module(x)


class Model(torch.nn.Module):
    def __init__(self, meta, of):
        super().__init__()
        self.of = of
        hidden, layers = int(meta["hidden"]), int(meta["layers"])
        self.jumping = meta["jumping"]
        width = [int(meta["in"])] + [hidden] * (layers - 1) + [int(meta["out"]) if self.jumping == "none" else hidden]
        if self.jumping != "none":
            self.lin = torch.nn.Linear(hidden * (layers if self.jumping == "cat" else 1), int(meta["out"]))

        def conv(cols, out, last):
            if meta["kind"] == "sage":
                return of.SAGEConv(cols, out, meta["aggregation"])
            if meta["kind"] == "gcn":
                return of.GCNConv(cols, out, meta["gcn_norm"])
            if meta["kind"] == "gin":
                return of.GINConv(cols, hidden if layers > 1 or self.jumping != "none" else out, out)
            concat = meta["head_merge"] == "concat" and not (last and self.jumping == "none")
            heads = int(meta["heads"])
            attention = of.GATv2Conv if meta["kind"] == "gatv2" else of.GATConv
            return attention(cols, out // heads if concat else out, heads, concat, float(meta["slope"]))

        self.convs = torch.nn.ModuleList(conv(a, b, i + 2 == len(width)) for i, (a, b) in enumerate(zip(width, width[1:])))
        hidden_widths = width[1 : -1 if self.jumping == "none" else None]
        if meta["norm"] == "layer":
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(w) for w in hidden_widths)
        elif meta["norm"] == "batch":
            self.norms = torch.nn.ModuleList(BatchNorm(w) for w in hidden_widths)
        self.norm = meta["norm"]
        self.residual = meta["residual"] == "true"
        self.activation = {"relu": torch.relu, "elu": torch.nn.functional.elu}[meta["activation"]]

    def forward(self, x, source, target, weight):
        rows = []
        for i, conv in enumerate(self.convs):
            own, x = x, self.of.call(conv, x, source, target, weight)
            if i + 1 < len(self.convs) or self.jumping != "none":
                x = self.norms[i](x) if self.norm != "none" else x
                x = self.activation(x + own if self.residual and i > 0 else x)
            rows.append(x)
        if self.jumping == "cat":
            x = self.lin(torch.cat(rows, dim=1))
        elif self.jumping == "max":
            x = self.lin(torch.stack(rows).amax(dim=0))
        return x


def main():
    run, data, path = sys.argv[1:]
    tensors, meta = load(f"{run}/model.safetensors")
    indptr, indices = np.load(f"{data}/indptr.npy"), np.load(f"{data}/indices.npy")
    target = torch.from_numpy(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)))
    source = torch.from_numpy(indices.astype(np.int64))
    x = torch.from_numpy(np.load(f"{data}/features.npy").astype(np.float32))
    weight = torch.ones(len(source), dtype=torch.float64)
    if meta["edge_weights"] == "true":
        weight = torch.from_numpy(np.load(f"{data}/edge_weights.npy").astype(np.float64))
    ours = np.load(path)

    def compare(name, of):
        """Prints the largest relative difference from these layers, and returns whether it is small."""
        model = Model(meta, of)
        model.load_state_dict(tensors)  # strict: every name must be there, and none beside
        model.eval()
        with torch.no_grad():
            single = model(x, source, target, weight.float()).numpy()
            theirs = model.double()(x.double(), source, target, weight).numpy()
        assert ours.shape == theirs.shape and ours.dtype == np.float32, (ours.shape, theirs.shape, ours.dtype)
        worst, own = (np.max(np.abs(z - theirs) / np.maximum(1, np.abs(theirs))) for z in (ours, single))
        print(f"{name}: {ours.shape[0]} x {ours.shape[1]} logits, largest difference {worst:.2e}, its own in float32 {own:.2e}")
        return worst <= 1e-5

    same = compare(f"torch {torch.__version__}", Plain())
    if Geometric(meta).has:
        same &= compare(f"torch_geometric {torch_geometric.__version__}", Geometric(meta))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
