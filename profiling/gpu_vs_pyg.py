#!/usr/bin/env python3
"""GraphSAGE of halognn's shape in PyTorch Geometric on one GPU: what `make bench-gpu` sets beside halognn's epoch.

    gpu_vs_pyg.py --data DATASET [--fanouts 15,10,5] [--batch 1024] [--hidden 256] [--steps 200]

DATASET is a directory that `halognn generate` wrote. Blocks are sampled here once, on the host, before anything is timed: destinations
first among their sources, at most fanout in-neighbours each, without replacement, as halognn's are. They go to PyG as bipartite
edge lists, features with them from pinned memory, so what is timed is copy, forward, loss, backward and update: halognn's phases forward, backward
and update in summary.json, and its gather where it runs on the device.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv


def sample(indptr, indices, seeds, fanouts, rng):
    """Returns blocks, input layer first, as (edge_index [2,E], destinations), and the frontier."""
    blocks, frontier = [], seeds
    for fanout in fanouts:
        where = {int(v): i for i, v in enumerate(frontier)}
        sources, targets, new = [], [], []
        for t, v in enumerate(frontier):
            near = indices[indptr[v]:indptr[v + 1]]
            if len(near) > fanout:
                near = rng.choice(near, fanout, replace=False)
            for u in near.tolist():
                if u not in where:
                    where[u] = len(where)
                    new.append(u)
                sources.append(where[u])
                targets.append(t)
        blocks.append((torch.tensor([sources, targets], dtype=torch.long), len(frontier)))
        frontier = np.concatenate([frontier, np.array(new, dtype=frontier.dtype)])
    return blocks[::-1], frontier


class SAGE(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, blocks):
        for i, (conv, (edges, n)) in enumerate(zip(self.convs, blocks)):
            x = conv((x, x[:n]), edges)
            if i + 1 < len(self.convs):
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=8, help="minibatches that are sampled, and used in turn")
    o = parser.parse_args()
    fanouts = [int(f) for f in o.fanouts.split(",")]
    load = lambda name: np.load(o.data / f"{name}.npy", mmap_mode="r")
    indptr, indices, features, labels, train = (load(n) for n in ("indptr", "indices", "features", "labels", "train"))
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(o.blocks):
        seeds = rng.choice(train, min(o.batch, len(train)), replace=False)
        blocks, frontier = sample(indptr, indices, np.asarray(seeds), fanouts, rng)
        x = torch.from_numpy(np.asarray(features[frontier], dtype=np.float32)).pin_memory()
        y = torch.from_numpy(np.asarray(labels[seeds], dtype=np.int64)).pin_memory()
        batches.append((x, [(e.pin_memory(), n) for e, n in blocks], y))

    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda")
    model = SAGE([features.shape[1]] + [o.hidden] * (len(fanouts) - 1) + [int(labels.max()) + 1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def step(i):
        x, blocks, y = batches[i % len(batches)]
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        blocks = [(e.to(device, non_blocking=True), n) for e, n in blocks]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, blocks), y)
        loss.backward()
        optimizer.step()
        return loss

    for i in range(20):
        step(i)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(o.steps):
        loss = step(i)
    torch.cuda.synchronize()
    each = (time.perf_counter() - begin) / o.steps
    print(json.dumps({
        "program": f"torch {torch.__version__}, PyG", "device": torch.cuda.get_device_name(), "step_seconds": each,
        "steps_per_epoch": -(-len(train) // o.batch), "frontier": int(np.mean([len(b[0]) for b in batches])), "loss": float(loss),
    }))


if __name__ == "__main__":
    main()
