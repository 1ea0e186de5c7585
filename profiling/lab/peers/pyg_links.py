"""PyTorch Geometric that predicts links by inner products, full batch or with LinkNeighborLoader,
on the splits of a halognn DATASET.

    pyg_links.py DATASET --kind sage --epochs 100 --batch 0 --others FILE

--batch 0 trains on all links and neighbours at once, otherwise LinkNeighborLoader samples with
pyg-lib or torch-sparse, whichever is installed. Prints a line an epoch, and with --others the
metrics of the test links at the epoch with the best validation. FILE.npy has a line for each
validation and test link: source, target, and the vertices that replace the target.
"""

import commandline

ARGUMENTS = commandline.parse(
    "PyTorch Geometric, links", ["torch", "torch_geometric"], kind={"default": "sage"},
    others={"help": "what to judge by"}, seed={"type": int, "default": 0},
    metric={"default": "auc", "help": "that chooses the epoch: auc, average_precision or mrr"},
    negatives={"type": int, "default": 4, "help": "of a link, other targets"},
    pairs={"action": "store_true", "help": "negatives with both ends drawn, one a link"},
    disjoint={"action": "store_true", "help": "training links pass no messages"},
    valid={"action": "store_true", "help": "validation links pass messages in the test"},
    every={"type": int, "default": 1, "help": "epochs between two validations"},
    dropout={"type": float, "default": 0.0}, lr={"type": float, "default": 0.003},
    width={"type": int, "default": 64, "help": "of embeddings"})

import os
import random
import time

import numpy
import scipy.sparse
import torch
import torch.nn.functional as functional
from sklearn.metrics import average_precision_score, roc_auc_score
from torch_geometric.data import Data
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import negative_sampling

import graph


class Dataset:
    """x [N, F], sparse if stored so and trained full batch, edges [2, M] by ascending target, in
    rows of indptr, links {split: [2, L]}."""

    def __init__(self, path, a):
        def array(name):
            return numpy.load(f"{path}/{name}.npy")

        indptr = array("indptr").astype(numpy.int64)
        self.indptr, self.vertices = torch.from_numpy(indptr), len(indptr) - 1
        to = numpy.repeat(numpy.arange(self.vertices), numpy.diff(indptr))
        self.edges = torch.from_numpy(numpy.stack([array("indices").astype(numpy.int64), to]))
        self.links = {s: torch.from_numpy(array(f"links/{s}").astype(numpy.int64).T.copy())
                      for s in ("train", "valid", "test")}
        x = array("features")
        # files of columns, and of values unless all are 1
        if os.path.exists(f"{path}/feature_indptr.npy"):
            column = x[:, 0]
            value = x[:, 1].copy().view(numpy.float32) if x.shape[1] > 1 else 1
            row = numpy.repeat(numpy.arange(self.vertices), numpy.diff(array("feature_indptr")))
            shape = (self.vertices, int(column.max()) + 1)
            x = scipy.sparse.csr_matrix((value + 0 * row, (row, column)), shape, numpy.float32)
            if not a.batch:
                self.x = torch.sparse_csr_tensor(x.indptr, x.indices, x.data, shape)
                return
            x = x.toarray()
        self.x = torch.from_numpy(x.astype(numpy.float32))

    def without(self, links):
        """The edges without the links and their reverses."""
        n = self.vertices
        key = torch.cat([links[0] * n + links[1], links[1] * n + links[0]])
        parts = self.edges.split(1 << 20, 1)  # isin needs many times the memory of its input
        return self.edges[:, torch.cat([~torch.isin(e[0] * n + e[1], key) for e in parts])]


class GCN(GCNConv):
    """Also for sparse features."""

    def __init__(self, i, o):
        super().__init__(i, o)
        self.lin.forward = lambda x: product(x, self.lin.weight)


class SAGE(SAGEConv):
    """Also for sparse features: the mean of products instead of the product of a mean."""

    def forward(self, x, edges):
        near = product(x, self.lin_l.weight)
        return (self.propagate(edges, x=(near, near), size=None) + self.lin_l.bias
                + product(x, self.lin_r.weight))


def product(x, weight):
    return torch.sparse.mm(x, weight.t()) if x.is_sparse_csr else functional.linear(x, weight)


class Model(torch.nn.Module):
    def __init__(self, features, a):
        super().__init__()
        convolution = {"gcn": GCN, "sage": SAGE if a.batch == 0 else SAGEConv}[a.kind]
        width = [features] + [a.hidden] * (len(a.fanouts) - 1) + [a.width]
        self.layers = torch.nn.ModuleList(map(convolution, width, width[1:]))
        self.dropout = a.dropout

    def forward(self, x, edges):
        for layer in self.layers[:-1]:
            x = functional.dropout(layer(x, edges).relu(), self.dropout, self.training)
        return self.layers[-1](x, edges)


def everything(d, a):
    """One minibatch of all links: features, edges, pairs, which of them are links."""
    links = d.links["train"]
    edges = d.without(links) if a.disjoint else d.edges
    drawn = negative_sampling(d.edges, d.vertices, links.shape[1], method="sparse")
    label = torch.cat([torch.ones(links.shape[1]), torch.zeros(drawn.shape[1])])
    yield d.x, edges, torch.cat([links, drawn], 1), label


def loader(d, a):
    edges = d.without(d.links["train"]) if a.disjoint else d.edges
    how = {"mode": "binary"} if a.pairs else {"mode": "triplet", "amount": a.negatives}
    batches = LinkNeighborLoader(
        Data(x=d.x, edge_index=edges), a.fanouts, edge_label_index=d.links["train"],
        neg_sampling=how, batch_size=a.batch, shuffle=True, num_workers=a.workers,
        is_sorted=True, persistent_workers=a.workers > 0)

    def epoch():
        for b in batches:
            if a.pairs:
                yield b.x, b.edge_index, b.edge_label_index, b.edge_label.float()
                continue
            links = torch.stack([b.src_index, b.dst_pos_index])
            others = b.dst_neg_index.reshape(links.shape[1], -1)
            drawn = torch.stack([b.src_index.repeat_interleave(others.shape[1]), others.flatten()])
            label = torch.cat([torch.ones(links.shape[1]), torch.zeros(drawn.shape[1])])
            yield b.x, b.edge_index, torch.cat([links, drawn], 1), label
    return epoch


def rate(z, pairs):
    return (z[pairs[0]] * z[pairs[1]]).sum(1)


class Judge:
    """Metrics of links among the vertices of a file."""

    def __init__(self, d, a):
        rows = torch.from_numpy(numpy.load(a.others).astype(numpy.int64))
        n = d.links["valid"].shape[1]
        self.rows = {"valid": rows[:n], "test": rows[n:]}
        both = torch.cat([d.links["valid"], d.links["valid"].flip(0)], 1)
        self.x, self.vertices = d.x, d.vertices
        shape = (self.vertices, self.vertices)
        plain = torch.sparse_csr_tensor(d.indptr, d.edges[0], torch.ones(d.edges.shape[1]), shape)
        self.adjacency = {"valid": plain, "test": plain}
        if a.valid:
            edges = torch.cat([d.edges, both], 1)
            self.adjacency["test"] = torch.sparse_coo_tensor(
                edges.flip(0), torch.ones(edges.shape[1]), shape).to_sparse_csr()

    @torch.no_grad()
    def metrics(self, model, split):
        model.eval()
        z = model(self.x, self.adjacency[split])
        model.train()
        r = self.rows[split]
        rates = torch.cat([(z[p[:, :1]] * z[p[:, 1:]]).sum(2) for p in r.split(1000)])
        link, others = rates[:, 0], rates[:, 1:]  # by one sum, so that equal rows are ties
        scores = torch.cat([link, others[:, 0]]).numpy()  # one negative a link, as in halognn
        truth = numpy.repeat([1, 0], len(link))
        above = (others > link[:, None]).sum(1) + 0.5 * (others == link[:, None]).sum(1)
        return {"auc": roc_auc_score(truth, scores),
                "average_precision": average_precision_score(truth, scores),
                "mrr": (1 / (1 + above)).mean().item()}


def main():
    a = ARGUMENTS
    graph.begin(a)
    torch.manual_seed(a.seed)
    numpy.random.seed(a.seed)
    random.seed(a.seed)  # negative_sampling draws by it
    d = Dataset(a.data, a)
    judge = a.others and Judge(d, a)
    epoch_of = loader(d, a) if a.batch else lambda: everything(d, a)
    model = Model(d.x.shape[1], a)
    optimizer = torch.optim.Adam(model.parameters(), lr=a.lr)
    best, found = -1.0, None
    for epoch in range(1, a.epochs + 1):
        begin, computing, steps, total = time.perf_counter(), 0.0, 0, 0.0
        for x, edges, pairs, label in epoch_of():
            start = time.perf_counter()
            scores = rate(model(x, edges), pairs)
            loss = functional.binary_cross_entropy_with_logits(scores, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            computing += time.perf_counter() - start
            steps += 1
            total += loss.item()
        graph.report(f"pyg workers={a.workers}", epoch, time.perf_counter() - begin, computing,
                     steps, total / steps)
        if judge and (epoch % a.every == 0 or epoch == a.epochs):
            if (v := judge.metrics(model, "valid")[a.metric]) > best:
                best, found = v, {"epoch": epoch, **judge.metrics(model, "test")}
    if found:
        print("test", *(f"{k} {v:.6f}" for k, v in found.items()), flush=True)


if __name__ == "__main__":
    main()
