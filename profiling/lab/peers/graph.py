"""A halognn DATASET as torch tensors, and the model that every peer trains on it."""

import statistics
import time

import numpy
import torch
import torch.nn.functional as functional


def begin(a):
    """Makes torch repeatable, and sets the number of threads from the command line."""
    torch.manual_seed(0)
    torch.set_num_threads(1 if a.sampler else a.threads)


class Dataset:
    """indptr [N+1] int64 and indices [M] of the in-edges (CSC), features [N, F] float32,
    labels [N] int64, train: ids int64."""

    def __init__(self, path):
        def array(name, kind=None):
            a = numpy.load(f"{path}/{name}.npy")
            return torch.from_numpy(a if kind is None else a.astype(kind))

        self.indptr = array("indptr")
        self.indices = array("indices")
        self.features = array("features", numpy.float32)
        self.labels = array("labels", numpy.int64)
        self.train = array("train", numpy.int64)
        self.vertices = len(self.indptr) - 1
        self.classes = int(self.labels.max()) + 1


class Model(torch.nn.Module):
    """ReLU and dropout between layers; layer(i, o, last) makes one."""

    def __init__(self, layer, features, hidden, classes, layers):
        super().__init__()
        width = [features] + [hidden] * (layers - 1) + [classes]
        self.layers = torch.nn.ModuleList(layer(width[i], width[i + 1], i == layers - 1)
                                          for i in range(layers))

    def forward(self, edges, h):
        """edges: one block a layer."""
        for i, (layer, e) in enumerate(zip(self.layers, edges)):
            h = layer(e, h)
            if i < len(self.layers) - 1:
                h = functional.dropout(functional.relu(h), 0.5, self.training)
        return h


class Heads(torch.nn.Module):
    """DGL's attention conv with two heads: side by side, or averaged in the last layer. It lacks
    the edges from each vertex to itself, which halognn adds."""

    def __init__(self, conv, inputs, outputs, last, heads=2):
        super().__init__()
        self.last = last
        self.conv = conv(inputs, outputs if last else outputs // heads, heads,
                         allow_zero_in_degree=True)

    def forward(self, block, h):
        h = self.conv(block, h)
        return h.mean(1) if self.last else h.flatten(1)


def layer_of(kind):
    """The layer of Model for a kind of docs/models.md."""
    import dgl.nn

    if kind in ("gat", "gatv2"):
        conv = dgl.nn.GATConv if kind == "gat" else dgl.nn.GATv2Conv
        return lambda i, o, last: Heads(conv, i, o, last)
    if kind == "gin":
        return lambda i, o, _: dgl.nn.GINConv(torch.nn.Sequential(
            torch.nn.Linear(i, o), torch.nn.ReLU(), torch.nn.Linear(o, o)), learn_eps=True)
    return lambda i, o, _: dgl.nn.SAGEConv(i, o, "gcn" if kind == "gcn" else "mean")


def loss_of(model, edges, rows, labels, bf16):
    """The loss in float32; bf16: layers compute under torch.autocast."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(edges, rows)[: len(labels)]
    return functional.cross_entropy(logits.float(), labels)


def train(name, model, batches, epochs, bf16=False):
    """Trains, and prints a line an epoch: name, seconds, seconds computing, steps, mean loss.

    batches() yields (edges, rows, labels of the seeds) for one epoch.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    for epoch in range(1, epochs + 1):
        begin, computing, steps, total = time.perf_counter(), 0.0, 0, 0.0
        for edges, rows, labels in batches():
            start = time.perf_counter()
            loss = loss_of(model, edges, rows, labels, bf16)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            computing += time.perf_counter() - start
            steps += 1
            total += loss.item()
        report(name, epoch, time.perf_counter() - begin, computing, steps, total / steps)


def time_sampler(name, counts, minibatches=32, warm=2):
    """Prints the median rate of a sampler, in million edges a second of CPU time, as for
    halognn. counts yields the number of edges of each minibatch; the first ones are a warm-up."""
    rates = []
    for _ in range(minibatches):
        begin = time.process_time()
        edges = next(counts, None)
        if edges is None:
            break
        rates.append(edges / (time.process_time() - begin) / 1e6)
    print(f"sampler {statistics.median(rates[warm:]):.3f} {name}", flush=True)


def report(name, epoch, seconds, computing, steps, loss):
    """The line that compare.py reads."""
    print(f"epoch {epoch} {seconds:.3f} {computing:.3f} {steps} {loss:.4f} {name}", flush=True)
