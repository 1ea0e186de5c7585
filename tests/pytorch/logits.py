#!/usr/bin/env python3
"""logits.py RUN DATASET LOGITS.npy ...: computes the logits of all vertices of DATASET by the models of python/halognn/models.py with the
weights of RUN, and holds those of `halognn infer --logits` against them: |difference| <= 1e-5 * max(1, |logit|). Needs torch and numpy;
where PyTorch Geometric and DGL are installed, their own layers are held to the same. More than three arguments are more runs.
"""
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import halognn  # noqa: E402 (after the path)


def agree(directory, data, path, label):
    """Compares the logits of one run, and returns whether they agree."""
    run, ours = halognn.read_run(directory), np.load(path)
    indptr, indices = np.load(f"{data}/indptr.npy"), np.load(f"{data}/indices.npy")
    edges = torch.from_numpy(np.stack([indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))]).astype(np.int64))
    x = torch.from_numpy(np.load(f"{data}/features.npy").astype(np.float32))
    weight = None
    if run.model["edge_weights"] == "true":
        weight = torch.from_numpy(np.load(f"{data}/edge_weights.npy").astype(np.float32))

    def compare(name, model):
        """Prints the largest relative difference from this model, and returns whether it is small."""
        def logits(number):
            rows = x.to(number)
            graph = (dgl.graph(tuple(edges), num_nodes=len(x)), rows) if name.startswith("dgl") else (rows, edges)
            with torch.no_grad():
                return model.to(number)(*graph, None if weight is None else weight.to(number)).numpy()

        single, theirs = logits(torch.float32), logits(torch.float64)
        assert ours.shape == theirs.shape and ours.dtype == np.float32, (ours.shape, theirs.shape, ours.dtype)
        worst, own = (np.max(np.abs(z - theirs) / np.maximum(1, np.abs(theirs))) for z in (ours, single))
        print(f"{label}{name}: {ours.shape[0]} x {ours.shape[1]} logits, largest difference {worst:.2e}, its own in float32 {own:.2e}")
        return worst <= 1e-5

    same = compare(f"torch {torch.__version__}", halognn.to_torch(run))
    try:
        import torch_geometric
    except ImportError:
        torch_geometric = None
    try:
        import dgl.nn
    except Exception:  # a broken installation fails in many ways
        dgl = None
    if torch_geometric:
        same &= compare(f"torch_geometric {torch_geometric.__version__}", halognn.to_pyg(run))
    if dgl:
        same &= compare(f"dgl {dgl.__version__}", halognn.to_dgl(run))
    return same


def main():
    args = sys.argv[1:]
    if not args or len(args) % 3:
        sys.exit(__doc__)
    same = [agree(*args[i : i + 3], f"{os.path.basename(args[i])}: " if len(args) > 3 else "") for i in range(0, len(args), 3)]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
