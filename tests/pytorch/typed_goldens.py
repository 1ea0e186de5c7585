"""typed_goldens.py DIR: what convolutions of PyTorch Geometric make of a block of several relations
(HeteroConv, RGCNConv), and their gradients, in float64: typed_KIND.npz, which
src/model/nn tests against.
Written by PyTorch 2.1 and PyTorch Geometric 2.5.3."""

import sys

import numpy as np
import torch
from torch_geometric.nn import GATConv, GATv2Conv, HeteroConv, RGCNConv, SAGEConv

TYPES = ["a", "b"]
RELATIONS = [("a", "x", "a"), ("b", "y", "a"), ("a", "z", "b"), ("b", "none", "b")]
SOURCES, TARGETS, IN, OUT = [20, 30], [9, 11], 12, 6


def write(path, make, of_all=False):
    """Vertices of a type are numbered within it; X and Y have type after type, of X the targets first."""
    random = np.random.default_rng(1)
    draw = lambda *shape: torch.tensor(random.standard_normal(shape).astype(np.float32)).double()
    rows = {t: draw(n, IN) for t, n in zip(TYPES, SOURCES)}
    n, edges, data = dict(zip(TYPES, TARGETS)), {}, {}
    for i, (s, name, t) in enumerate(RELATIONS):
        lists = [np.sort(random.choice(SOURCES[TYPES.index(s)], random.integers(0, 7), False))
                 for _ in range(0 if name == "none" else n[t])]
        targets = np.repeat(np.arange(len(lists)), [len(x) for x in lists])
        pairs = np.stack([np.concatenate([*lists, []]).astype(np.int64), targets])
        edges[s, name, t], data[f"edges{i}"] = torch.tensor(pairs), pairs.astype(np.int32)
    x = {t: r.requires_grad_() for t, r in rows.items()}
    conv = make()
    for p in conv.parameters():
        p.data = draw(*p.shape) * 0.5
    if of_all:
        first = {"a": 0, "b": SOURCES[0]}
        shift = lambda r: torch.tensor([[first[r[0]]], [first[r[2]]]])
        y = conv(torch.cat([x[t] for t in TYPES]), torch.cat([e + shift(r) for r, e in edges.items()], 1),
                 torch.cat([torch.full((e.shape[1],), i) for i, e in enumerate(edges.values())]))
        y = {t: y[first[t]:][:n[t]] for t in TYPES}
    else:
        y = {t: v[:n[t]] for t, v in conv(x, edges).items()}
    dy = {t: draw(*y[t].shape) for t in TYPES}
    sum((y[t] * dy[t]).sum() for t in TYPES).backward()
    cat = lambda of: torch.cat([of[t] for t in TYPES])
    arrays = {"X": cat(x), "Y": cat(y), "dY": cat(dy), "dX": cat({t: v.grad for t, v in x.items()})}
    for name, p in conv.named_parameters():
        arrays[name], arrays["d" + name] = p, p.grad if p.grad is not None else torch.zeros_like(p)
    for name, a in arrays.items():
        a = a.detach().numpy()
        data[name], data[name + "_f32"] = a, a.astype(np.float32)
    np.savez_compressed(path, **data)


torch.set_default_dtype(torch.float64)
out = sys.argv[1]
hetero = lambda conv: lambda: HeteroConv({r: conv() for r in RELATIONS}, aggr="sum")
write(out + "/typed_sage.npz", hetero(lambda: SAGEConv((IN, IN), OUT)))
write(out + "/typed_gat.npz", hetero(lambda: GATConv((IN, IN), OUT // 2, 2, add_self_loops=False)))
write(out + "/typed_gatv2.npz", hetero(lambda: GATv2Conv((IN, IN), OUT // 2, 2, add_self_loops=False)))
write(out + "/typed_rgcn.npz", lambda: RGCNConv(IN, OUT, len(RELATIONS), num_bases=3), True)
