#!/usr/bin/env python3
"""logits.py RUN DATASET LOGITS.npy: loads RUN/model.safetensors into a plain PyTorch GraphSAGE, computes the logits of all vertices
of DATASET, and holds those of `halognn infer --logits` against them: |difference| <= 1e-5 * max(1, |logit|).

With PyTorch Geometric the model is torch_geometric.nn.GraphSAGE and load_state_dict takes the same names; this file needs torch and numpy alone.
"""
import json
import sys

import numpy as np
import torch


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


class SAGEConv(torch.nn.Module):
    """mean over the in-neighbours through lin_l, the vertex itself through lin_r."""

    def __init__(self, cols, out):
        super().__init__()
        self.lin_l = torch.nn.Linear(cols, out)
        self.lin_r = torch.nn.Linear(cols, out, bias=False)

    def forward(self, x, source, target):
        degree = torch.zeros(len(x), dtype=x.dtype).index_add_(0, target, torch.ones(len(target), dtype=x.dtype))
        mean = torch.zeros_like(x).index_add_(0, target, x[source]) / degree.clamp(min=1)[:, None]
        return self.lin_l(mean) + self.lin_r(x)


class GraphSAGE(torch.nn.Module):
    def __init__(self, cols, hidden, layers, out, norm):
        super().__init__()
        width = [cols] + [hidden] * (layers - 1) + [out]
        self.convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in zip(width, width[1:]))
        if norm == "layer":
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(w) for w in width[1:-1])
        self.norm = norm

    def forward(self, x, source, target):
        for i, conv in enumerate(self.convs):
            x = conv(x, source, target)
            if i + 1 < len(self.convs):
                x = torch.relu(self.norms[i](x) if self.norm == "layer" else x)
        return x


def main():
    run, data, path = sys.argv[1:]
    tensors, meta = load(f"{run}/model.safetensors")
    assert meta["kind"] == "sage", meta
    model = GraphSAGE(int(meta["in"]), int(meta["hidden"]), int(meta["layers"]), int(meta["out"]), meta["norm"])
    model.load_state_dict(tensors)  # strict: every name must be there, and none beside
    model.eval()
    indptr, indices = np.load(f"{data}/indptr.npy"), np.load(f"{data}/indices.npy")
    target = torch.from_numpy(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)))
    source = torch.from_numpy(indices.astype(np.int64))
    x = torch.from_numpy(np.load(f"{data}/features.npy").astype(np.float32))
    with torch.no_grad():
        ours, theirs = np.load(path), model.double()(x.double(), source, target).numpy()
    assert ours.shape == theirs.shape and ours.dtype == np.float32, (ours.shape, theirs.shape, ours.dtype)
    worst = np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs)))
    print(f"torch {torch.__version__}: {ours.shape[0]} x {ours.shape[1]} logits, largest difference {worst:.2e}")
    return 0 if worst <= 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
