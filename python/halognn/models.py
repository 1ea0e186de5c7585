"""The model of a run in PyTorch, with its weights.

    to_torch(run)(x, edge_index, edge_weight=None)   layers of this file, of torch alone
    to_pyg(run)(x, edge_index, edge_weight=None)     those of PyTorch Geometric, where it has them
    to_dgl(run)(g, x, edge_weight=None)              those of DGL, where it has them

Models of graphs with types, and those that read features of edges, are refused. All others give the
logits of `halognn infer --logits`, before the scale of a regression. Rows of x and ids of edges are
those of the DATASET. Where a library lacks a layer (means of SAGE or sums of GIN by the weights of
edges in PyTorch Geometric, maxima of SAGE in DGL) the layer of this file stands in.
"""

import torch
from torch import nn
from torch.nn import functional

from .run import Run, read_run


def total(values, target, vertices):
    """The sum of the values of each vertex's edges."""
    return values.new_zeros(vertices, *values.shape[1:]).index_add_(0, target, values)


def share(weight, target, vertices):
    """The weight of each edge by the sum of those of its target; 0 where that is 0, as in halognn."""
    sums = total(weight, target, vertices)
    return weight / sums.masked_fill(sums == 0, float("inf"))[target]


class Edges:
    """The edges of a graph, and the same with an edge of weight 1 from each vertex to itself."""

    def __init__(self, vertices, source, target, weight):
        self.source, self.target, self.weight = source, target, weight
        own = torch.arange(vertices, device=source.device)
        self.looped = (torch.cat([source, own]), torch.cat([target, own]),
                       torch.cat([weight, weight.new_ones(vertices)]))

    def normalised(self, norm, vertices):
        """The weights of a GCN with its loops: norm is both or right."""
        source, target, weight = self.looped
        degree = total(weight, target, vertices)
        return weight * (1 / degree[target] if norm == "right" else
                         (degree[source] * degree[target]) ** -0.5)


class SAGEConv(nn.Module):
    """Mean (by the weights of edges) or maximum over the in-neighbours through lin_l, the vertex
    itself through lin_r."""

    def __init__(self, cols, out, aggr):
        super().__init__()
        self.aggr = aggr
        self.lin_l, self.lin_r = nn.Linear(cols, out), nn.Linear(cols, out, bias=False)

    def forward(self, x, e):
        if self.aggr == "max":
            rows = torch.zeros_like(x).index_reduce_(0, e.target, x[e.source], "amax",
                                                     include_self=False)
        else:
            weight = share(e.weight, e.target, len(x))
            rows = total(x[e.source] * weight[:, None], e.target, len(x))
        return self.lin_l(rows) + self.lin_r(x)


class GCNConv(nn.Module):
    def __init__(self, cols, out, norm):
        super().__init__()
        self.lin, self.norm = nn.Linear(cols, out, bias=False), norm
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x, e):
        source, target, _ = e.looped
        rows = x[source] * e.normalised(self.norm, len(x))[:, None]
        return self.lin(total(rows, target, len(x))) + self.bias


def perceptron(cols, hidden, out):
    return nn.Sequential(nn.Linear(cols, hidden), nn.ReLU(), nn.Linear(hidden, out))


class GINConv(nn.Module):
    def __init__(self, cols, hidden, out):
        super().__init__()
        self.nn, self.eps = perceptron(cols, hidden, out), nn.Parameter(torch.zeros(1))

    def forward(self, x, e):
        return self.nn((1 + self.eps) * x + total(x[e.source] * e.weight[:, None], e.target, len(x)))


class GATConv(nn.Module):
    def __init__(self, cols, out, heads, concat, slope):
        super().__init__()
        self.lin = nn.Linear(cols, heads * out, bias=False)
        self.att_src = nn.Parameter(torch.zeros(1, heads, out))
        self.att_dst = nn.Parameter(torch.zeros(1, heads, out))
        self.bias = nn.Parameter(torch.zeros(heads * out if concat else out))
        self.heads, self.out, self.concat, self.slope = heads, out, concat, slope

    def forward(self, x, e):
        source, target, _ = e.looped
        z = self.lin(x).view(-1, self.heads, self.out)
        score = (z * self.att_src).sum(-1)[source] + (z * self.att_dst).sum(-1)[target]
        score = functional.leaky_relu(score, self.slope)
        return attend(z, score, source, target, self.concat) + self.bias


class GATv2Conv(nn.Module):
    def __init__(self, cols, out, heads, concat, slope):
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(cols, heads * out), nn.Linear(cols, heads * out)
        self.att = nn.Parameter(torch.zeros(1, heads, out))
        self.bias = nn.Parameter(torch.zeros(heads * out if concat else out))
        self.heads, self.out, self.concat, self.slope = heads, out, concat, slope

    def forward(self, x, e):
        source, target, _ = e.looped
        left, right = (lin(x).view(-1, self.heads, self.out) for lin in (self.lin_l, self.lin_r))
        score = (functional.leaky_relu(left[source] + right[target], self.slope) * self.att).sum(-1)
        return attend(left, score, source, target, self.concat) + self.bias


def attend(z, score, source, target, concat):
    """The sums of the rows z of the sources by the softmax of the scores of edges and heads."""
    most = score.new_zeros(len(z), score.shape[1]).index_reduce_(0, target, score.detach(), "amax",
                                                                 include_self=False)
    weight = share(torch.exp(score - most[target]), target, len(z))  # without most, exp overflows
    y = total(z[source] * weight[:, :, None], target, len(z))
    return y.flatten(1) if concat else y.mean(1)


class Dense(nn.Linear):
    """A layer of kind mlp."""

    def forward(self, x, e):
        return super().forward(x)


class Plain:
    """The layers of this file."""

    def __init__(self, meta):
        self.norm, self.weighs = meta["gcn_norm"], meta["edge_weights"] == "true"

    def sage(self, cols, out, aggr):
        return SAGEConv(cols, out, aggr)

    def gcn(self, cols, out):
        return GCNConv(cols, out, self.norm)

    def gin(self, cols, hidden, out):
        return GINConv(cols, hidden, out)

    def gat(self, *shape):
        return GATConv(*shape)

    def gatv2(self, *shape):
        return GATv2Conv(*shape)

    def call(self, layer, x, e):
        return layer(x, e)


class Geometric(Plain):
    """The layers of PyTorch Geometric; their parameters have the names of this file's."""

    def __init__(self, meta):
        super().__init__(meta)
        import torch_geometric.nn
        self.library = torch_geometric.nn

    def sage(self, cols, out, aggr):
        return super().sage(cols, out, aggr) if self.weighs else self.library.SAGEConv(
            cols, out, aggr=aggr)

    def gcn(self, cols, out):
        return self.library.GCNConv(cols, out, normalize=self.norm == "both")

    def gin(self, cols, hidden, out):
        return super().gin(cols, hidden, out) if self.weighs else self.library.GINConv(
            perceptron(cols, hidden, out), train_eps=True)

    def gat(self, *shape):
        return self.library.GATConv(*shape)

    def gatv2(self, *shape):
        return self.library.GATv2Conv(*shape)

    def call(self, layer, x, e):
        if not isinstance(layer, self.library.MessagePassing):
            return layer(x, e)
        edges = torch.stack([e.source, e.target])
        if not isinstance(layer, self.library.GCNConv):
            return layer(x, edges)
        if self.norm == "both":
            return layer(x, edges, e.weight)
        return layer(x, torch.stack(e.looped[:2]), e.normalised(self.norm, len(x)))


class Library(nn.Module):
    """A layer of DGL. names: its parameter for each of this file's, and how the tensor changes."""

    def __init__(self, conv, forward, names):
        super().__init__()
        self.conv, self.run, self.names = conv, forward, names

    def forward(self, x, e):
        return self.run(self, x, e)

    def _load_from_state_dict(self, state, prefix, *rest):
        for ours, (theirs, change) in self.names.items():
            state[prefix + theirs] = change(state.pop(prefix + ours))
        super()._load_from_state_dict(state, prefix, *rest)


def same(tensor):
    return tensor


class Deep(Plain):
    """The layers of DGL."""

    def __init__(self, meta):
        super().__init__(meta)
        import dgl.nn
        self.dgl = dgl

    def graph(self, e, x, looped=False):
        ends = e.looped[:2] if looped else (e.source, e.target)
        return self.dgl.graph(ends, num_nodes=len(x))

    def sage(self, cols, out, aggr):
        if aggr == "max":
            return super().sage(cols, out, aggr)

        def forward(layer, x, e):
            # DGL divides by the number of edges, and this mean by their weights.
            edges = total(torch.ones_like(e.weight), e.target, len(x))
            weight = share(e.weight, e.target, len(x)) * edges[e.target]
            return layer.conv(self.graph(e, x), x, edge_weight=weight)

        return Library(self.dgl.nn.SAGEConv(cols, out, "mean"), forward, {
            "lin_l.weight": ("conv.fc_neigh.weight", same), "lin_l.bias": ("conv.fc_self.bias", same),
            "lin_r.weight": ("conv.fc_self.weight", same)})

    def gcn(self, cols, out):
        def forward(layer, x, e):
            return layer.conv(self.graph(e, x, True), x, edge_weight=e.normalised(self.norm, len(x)))

        return Library(self.dgl.nn.GraphConv(cols, out, norm="none"), forward, {
            "lin.weight": ("conv.weight", torch.t), "bias": ("conv.bias", same)})

    def gin(self, cols, hidden, out):
        def forward(layer, x, e):
            return layer.conv(self.graph(e, x), x, edge_weight=e.weight)

        conv = self.dgl.nn.GINConv(perceptron(cols, hidden, out), "sum", learn_eps=True)
        names = {f"nn.{i}.{part}": (f"conv.apply_func.{i}.{part}", same)
                 for i in (0, 2) for part in ("weight", "bias")}
        return Library(conv, forward, {"eps": ("conv.eps", same), **names})

    def gat(self, cols, out, heads, concat, slope):
        def forward(layer, x, e):
            y = layer.conv(self.graph(e, x, True), x)
            return y.flatten(1) if concat else y.mean(1)

        conv = self.dgl.nn.GATConv(cols, out, heads, negative_slope=slope)
        return Library(conv, forward, {
            "lin.weight": ("conv.fc.weight", same), "att_src": ("conv.attn_l", same),
            "att_dst": ("conv.attn_r", same),
            "bias": ("conv.bias", same if concat else lambda b: b.repeat(heads))})

    def gatv2(self, cols, out, heads, concat, slope):
        def forward(layer, x, e):
            y = layer.conv(self.graph(e, x, True), x)
            return (y.flatten(1) if concat else y.mean(1)) + layer.bias

        conv = self.dgl.nn.GATv2Conv(cols, out, heads, negative_slope=slope)
        names = {f"lin_{a}.{part}": (f"conv.fc_{b}.{part}", same)
                 for a, b in (("l", "src"), ("r", "dst")) for part in ("weight", "bias")}
        layer = Library(conv, forward, {"att": ("conv.attn", same), **names})
        layer.bias = nn.Parameter(torch.zeros(heads * out if concat else out))
        return layer


class BatchNorm(nn.Module):
    """PyTorch Geometric's, which holds PyTorch's as module."""

    def __init__(self, width):
        super().__init__()
        self.module = nn.BatchNorm1d(width)

    def forward(self, x):
        return self.module(x)


class Model(nn.Module):
    """The model that a run's metadata describe, of the layers of a library."""

    def __init__(self, meta, layers):
        super().__init__()
        kind, hidden, depth = meta["kind"], int(meta["hidden"]), int(meta["layers"])
        self.jumping, self.weighs = meta["jumping"], layers.weighs
        jumps = self.jumping != "none"
        width = [int(meta["in"])] + [hidden] * (depth - 1) + [hidden if jumps else int(meta["out"])]
        if jumps:
            self.lin = nn.Linear(hidden * (depth if self.jumping == "cat" else 1), int(meta["out"]))

        def conv(cols, out, last):
            if kind == "mlp":
                return Dense(cols, out)
            if kind == "sage":
                return layers.sage(cols, out, meta["aggregation"])
            if kind == "gcn":
                return layers.gcn(cols, out)
            if kind == "gin":
                return layers.gin(cols, hidden if depth > 1 or jumps else out, out)
            if kind not in ("gat", "gatv2"):
                raise ValueError(f"models of kind {kind} are not known here; a newer package has them")
            concat, heads = meta["head_merge"] == "concat" and (jumps or not last), int(meta["heads"])
            return getattr(layers, kind)(cols, out // heads if concat else out, heads, concat,
                                         float(meta["slope"]))

        self.of, self.stack = layers, "lins" if kind == "mlp" else "convs"
        self.add_module(self.stack, nn.ModuleList(
            conv(a, b, i + 1 == depth) for i, (a, b) in enumerate(zip(width, width[1:]))))
        inner = width[1:] if jumps else width[1:-1]
        norm = {"none": None, "layer": nn.LayerNorm, "batch": BatchNorm}[meta["norm"]]
        if norm:
            self.norms = nn.ModuleList(norm(w) for w in inner)
        self.normed, self.residual = norm is not None, meta["residual"] == "true"
        self.activation = {"relu": torch.relu, "elu": functional.elu}[meta["activation"]]

    def forward(self, x, edge_index, edge_weight=None):
        if self.weighs and edge_weight is None:
            raise ValueError("the run trained with weights of edges; give edge_weight")
        if not self.weighs or edge_weight is None:
            edge_weight = x.new_ones(edge_index.shape[1])
        e = Edges(len(x), edge_index[0], edge_index[1], edge_weight.to(x))
        rows = []
        layers = getattr(self, self.stack)
        for i, layer in enumerate(layers):
            own, x = x, self.of.call(layer, x, e)
            if i + 1 < len(layers) or self.jumping != "none":
                x = self.norms[i](x) if self.normed else x
                x = self.activation(x + own if self.residual and i > 0 else x)
            rows.append(x)
        if self.jumping == "cat":
            x = self.lin(torch.cat(rows, dim=1))
        elif self.jumping == "max":
            x = self.lin(torch.stack(rows).amax(dim=0))
        return x


class GraphModel(Model):
    """Model, called as models of DGL are."""

    def forward(self, g, x, edge_weight=None):
        return super().forward(x, torch.stack(g.edges(order="eid")), edge_weight)


def build(run, layers, kind=Model):
    run = run if isinstance(run, Run) else read_run(run)
    if any(name.startswith("project.") or ".convs." in name for name in run.weights) or \
            run.model["kind"] == "rgcn":
        raise ValueError("this is a model of a graph with types, which is not built here; its weights "
                         "are in run.weights, and docs/formats.md says what they are applied to")
    if run.model["kind"] == "gine" or any(".lin_edge." in name for name in run.weights):
        raise ValueError("this model reads features of edges, which the models built here do not; its "
                         "weights are in run.weights, and docs/formats.md says what they are applied to")
    model = kind(run.model, layers(run.model))
    model.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in run.weights.items()})
    return model.eval()


def to_torch(run):
    return build(run, Plain)


def to_pyg(run):
    return build(run, Geometric)


def to_dgl(run):
    return build(run, Deep, GraphModel)
