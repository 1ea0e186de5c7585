"""Typed graphs with the layers of PyTorch Geometric, trained as halognn does on one rank with one
minibatch an epoch and all neighbours.

    pyg_typed.py DATASET --kind sage --hidden 64 --epochs 60 --lr 0.005 --decay 0.001 --seeds 10

A linear map of each type, two convolutions with ReLU and dropout between them. Prints the
test accuracy after the last epoch for each seed. Types without features learn rows of --learned
columns, which are drawn uniformly within --scale and are trained with a rate of their own, without
decay.
"""

import argparse
import json
import sys

import commandline


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", help="halognn DATASET directory")
    p.add_argument("--kind", default="sage", choices=["sage", "gat", "gatv2", "rgcn"])
    for name, default in (("hidden", 64), ("heads", 4), ("bases", 0), ("epochs", 60), ("seeds", 10),
                          ("threads", 1), ("learned", 64)):
        p.add_argument("--" + name, type=int, default=default)
    for name, default in (("lr", 0.005), ("decay", 0.0), ("dropout", 0.0), ("learned-lr", 0.01),
                          ("scale", 0.01)):
        p.add_argument("--" + name, type=float, default=default)
    p.add_argument("--weights", help="model.safetensors of a run: print no accuracies, but how far its logits are")
    p.add_argument("--logits", help="those logits, of halognn infer --logits")
    a = p.parse_args()
    commandline.require(["torch", "torch_geometric"])
    return a


ARGUMENTS = arguments()  # before the imports, so that --help works without them

import numpy as np
import torch
import torch.nn.functional as functional
from torch_geometric.nn import GATConv, GATv2Conv, HeteroConv, RGCNConv, SAGEConv


class Dataset:
    """x {type: sparse [N, F]} of types with features, count {type: N}, edges {relation: [2, E]}
    numbered within types, labels, train, test."""

    def __init__(self, path):
        with open(f"{path}/meta.json", encoding="utf8") as f:
            m = json.load(f)
            m.update(m.get("schema", {}))
        self.types, self.classes, self.labelled = m["types"], m["classes"], m["label_type"]
        counts = [t["vertices"] for t in m["tables"]]
        start = dict(zip(self.types, np.cumsum([0] + counts)))
        self.relations = [(r["source"], r["name"], r["target"]) for r in m["relations"]]
        indices, columns = (np.load(f"{path}/{name}.npy") for name in ("indices", "columns"))
        self.edges, at = {}, 0
        for kind, n in zip(self.types, counts):
            into = [r for r in self.relations if r[2] == kind]
            for k, r in enumerate(into):
                c = at + np.arange(n) * len(into) + k
                size = columns[c + 1] - columns[c]
                first = np.repeat(columns[c] - np.cumsum(size) + size, size)
                source = indices[first + np.arange(size.sum())].astype(np.int64) - start[r[0]]
                self.edges[r] = torch.from_numpy(np.stack([source, np.repeat(np.arange(n), size)]))
            at += n * len(into)
        self.count = dict(zip(self.types, counts))
        x = {kind: np.load(f"{path}/features.{kind}.npy") for kind in self.types}
        self.x = {kind: torch.from_numpy(of.astype(np.float32)).to_sparse_csr()
                  for kind, of in x.items() if of.shape[1] > 0}
        own = slice(start[self.labelled], start[self.labelled] + counts[self.types.index(self.labelled)])
        self.labels = torch.from_numpy(np.load(f"{path}/labels.npy").astype(np.int64)[own])
        self.train, self.test = (torch.from_numpy(np.load(f"{path}/{s}.npy").astype(np.int64)) - own.start
                                 for s in ("train", "test"))


class Model(torch.nn.Module):
    def __init__(self, d, a):
        super().__init__()
        self.d, self.a = d, a
        self.project = torch.nn.ModuleDict(
            {kind: torch.nn.Linear(d.x[kind].shape[1] if kind in d.x else a.learned, a.hidden)
             for kind in d.types})
        self.rows = torch.nn.ParameterDict(
            {kind: torch.nn.Parameter(torch.empty(d.count[kind], a.learned).uniform_(-a.scale, a.scale))
             for kind in d.types if kind not in d.x})
        self.convs = torch.nn.ModuleList(self.layer(a.hidden, w) for w in (a.hidden, d.classes))

    def layer(self, i, o):
        a = self.a
        if a.kind == "rgcn":
            return RGCNConv(i, o, len(self.d.relations), num_bases=a.bases or None)
        if a.kind == "sage":
            return HeteroConv({r: SAGEConv((i, i), o) for r in self.d.relations}, aggr="sum")
        attention, last = {"gat": GATConv, "gatv2": GATv2Conv}[a.kind], o == self.d.classes
        return HeteroConv({r: attention((i, i), o if last else o // a.heads, a.heads, concat=not last,
                                        add_self_loops=False) for r in self.d.relations}, aggr="sum")

    def forward(self):
        d = self.d
        h = {kind: torch.sparse.mm(d.x[kind], map.weight.t()) + map.bias if kind in d.x
             else map(self.rows[kind]) for kind, map in self.project.items()}
        if self.a.kind == "rgcn":  # as one type of all vertices
            first = dict(zip(d.types, np.cumsum([0] + [len(h[kind]) for kind in d.types])))
            ends = {r: torch.tensor([[int(first[r[0]])], [int(first[r[2]])]]) for r in d.relations}
            edges = torch.cat([d.edges[r] + ends[r] for r in d.relations], 1)
            kinds = torch.cat([torch.full((d.edges[r].shape[1],), i) for i, r in enumerate(d.relations)])
            x = torch.cat([h[kind] for kind in d.types])
            x = self.convs[1](self.between(self.convs[0](x, edges, kinds)), edges, kinds)
            return x[first[d.labelled]:][:len(d.labels)]
        h = {kind: self.between(x) for kind, x in self.convs[0](h, d.edges).items()}
        return self.convs[1](h, d.edges)[d.labelled]

    def between(self, x):
        return functional.dropout(functional.relu(x), self.a.dropout, self.training)


def train(d, a):
    """Returns the accuracy on the test vertices, and the last loss."""
    model = Model(d, a)
    rows = list(model.rows.parameters())
    weights = [p for name, p in model.named_parameters() if not name.startswith("rows.")]
    optimizer = torch.optim.Adam([{"params": weights, "weight_decay": a.decay},
                                  {"params": rows, "lr": a.learned_lr}], lr=a.lr)
    for _ in range(a.epochs):
        loss = functional.cross_entropy(model()[d.train], d.labels[d.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model()[d.test].argmax(1) == d.labels[d.test]
    return right.float().mean().item(), loss.item()


def compare(d, a):
    """Prints the largest difference of the logits, relative to max(1, |logit|)."""
    from halognn.run import read_safetensors  # training needs no halognn
    model = Model(d, a)
    weights, _ = read_safetensors(a.weights)
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    model = model.double().eval()
    d.x = {kind: x.double() for kind, x in d.x.items()}
    with torch.no_grad():
        theirs = model().numpy()
    worst = np.max(np.abs(np.load(a.logits) - theirs) / np.maximum(1, np.abs(theirs)))
    print(f"{a.kind}: {len(theirs)} x {theirs.shape[1]} logits, largest difference {worst:.2e}")
    return int(not worst <= 1e-5)


def main():
    a = ARGUMENTS
    torch.set_num_threads(a.threads)
    d = Dataset(a.data)
    if a.weights:
        return compare(d, a)
    for seed in range(a.seeds):
        torch.manual_seed(seed)
        print("test accuracy %.6f, loss %.6f" % train(d, a), flush=True)


if __name__ == "__main__":
    sys.exit(main())
