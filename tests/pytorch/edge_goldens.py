"""edge_goldens.py DIR: what GATv2Conv and GINEConv of PyTorch Geometric make of a block whose edges have
features, and their gradients, in float64: gatv2_edges.npz and gine.npz, which
src/model/nn tests against.
Written by PyTorch 1.13 and PyTorch Geometric 2.5.3."""

import sys

import numpy as np
import torch
from torch_geometric.nn import GATv2Conv, GINEConv

SOURCES, TARGETS, IN, OUT, EDGE = 50, 20, 12, 6, 5


def block(random):
    """In-neighbours of each target, none of them itself; one target has none."""
    lists = [np.sort(random.choice(np.delete(np.arange(SOURCES), d), random.integers(1, 9), False))
             for d in range(TARGETS)]
    lists[3] = lists[3][:0]
    return np.cumsum([0] + [len(x) for x in lists]), np.concatenate(lists)


def write(path, conv, names, random):
    indptr, indices = block(random)
    targets = np.repeat(np.arange(TARGETS), np.diff(indptr))
    edges = torch.tensor(np.stack([indices, targets]))
    data = {}
    # float32 inputs, so that both sides read the same numbers
    draw = lambda *shape: torch.tensor(random.standard_normal(shape).astype(np.float32)).double()
    x, rows, dy = draw(SOURCES, IN).requires_grad_(), draw(len(indices), EDGE), draw(TARGETS, OUT)
    for p in conv.parameters():
        p.data = draw(*p.shape) * 0.5
    y = conv((x, x[:TARGETS]), edges, rows)
    y.backward(dy)
    arrays = {"X": x, "edge_X": rows, "dY": dy, "Y": y, "dX": x.grad}
    for name, p in conv.named_parameters():
        arrays[names[name]], arrays["d" + names[name]] = p, p.grad
    for name, a in arrays.items():
        a = a.detach().numpy()
        data[name], data[name + "_f32"] = a, a.astype(np.float32)
    np.savez_compressed(path, indptr=indptr.astype(np.int64), indices=indices.astype(np.int32),
                        num_src=np.array([SOURCES]), num_dst=np.array([TARGETS]), **data)


torch.set_default_dtype(torch.float64)
out = sys.argv[1]
linear = torch.nn.Linear
write(out + "/gatv2_edges.npz", GATv2Conv(IN, OUT // 2, heads=2, edge_dim=EDGE),
      {"lin_l.weight": "W_l", "lin_l.bias": "b_l", "lin_r.weight": "W_r", "lin_r.bias": "b_r",
       "att": "a", "bias": "b", "lin_edge.weight": "W_edge"}, np.random.default_rng(1))
write(out + "/gine.npz", GINEConv(torch.nn.Sequential(linear(IN, OUT), torch.nn.ReLU(), linear(OUT, OUT)),
                                  train_eps=True, edge_dim=EDGE),
      {"nn.0.weight": "W1", "nn.0.bias": "b1", "nn.2.weight": "W2", "nn.2.bias": "b2", "eps": "eps",
       "lin.weight": "W_edge", "lin.bias": "b_edge"}, np.random.default_rng(2))
