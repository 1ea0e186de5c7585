"""learned_goldens.py DIR: ten steps of torch.optim.SparseAdam on rows of which each step reads some, in
float64: learned_sparseadam.npz, which src/model/nn tests against. Written by PyTorch 2.1."""

import sys

import numpy as np
import torch

ROWS, COLS, STEPS = 23, 7, 10

random = np.random.default_rng(1)
rows = torch.nn.Embedding(ROWS, COLS, sparse=True, dtype=torch.float64)
start = random.standard_normal((ROWS, COLS)).astype(np.float32)
rows.weight.data = torch.tensor(start).double()
optimizer = torch.optim.SparseAdam(rows.parameters(), lr=0.01)
data = {"p0": start.astype(np.float64), "p0_f32": start, "lr": np.array([0.01])}
for step in range(1, STEPS + 1):
    # rows 20 to 22 have no gradient at all, and the fourth step reads none
    ids = np.sort(random.choice(20, 0 if step == 4 else random.integers(1, 20), False))
    grads = (random.standard_normal((len(ids), COLS)) * 10.0 ** random.integers(-4, 2)).astype(np.float32)
    optimizer.zero_grad()
    (rows(torch.tensor(ids)) * torch.tensor(grads).double()).sum().backward()
    optimizer.step()
    data[f"ids{step}"], data[f"grads{step}"] = ids.astype(np.int32), grads.astype(np.float64)
    data[f"grads{step}_f32"] = grads
state = optimizer.state[rows.weight]
for name, array in (("p", rows.weight.detach()), ("m", state["exp_avg"]), ("v", state["exp_avg_sq"])):
    data[name], data[name + "_f32"] = array.numpy(), array.numpy().astype(np.float32)
np.savez_compressed(sys.argv[1] + "/learned_sparseadam.npz", **data)
