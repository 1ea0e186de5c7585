#!/usr/bin/env python3
"""gpu_vs_pyg.py --work DIR [--device cuda|cpu] ...: compares halognn with PyTorch and PyTorch
Geometric, on one device and on the same minibatches.

    generate, partition ──> halognn blocks ──> blocks, initial weights ──> torch (index_add),
                       │                                     PyG (SAGEConv): losses, seconds
                       └──> halognn train  ──> losses, seconds

All train the same GraphSAGE (mean aggregation, bias, ReLU) from the same weights on the same
blocks, in float32, so their losses must agree: the first within 1e-5, the others within
--tolerance, as rounding grows from step to step. If they do not, the exit code is 1. PyTorch's
products in tf32 or bf16 (--precisions) are timed too, and their losses need not agree.

A step of PyTorch is: blocks and features to the device, forward, loss, backward, update. Blocks are
read and pinned before. With --features device the rows are on the device and gathered there
(halognn: compute.gpu_rows=1); with host they are gathered on the host and copied (gpu_rows=0).
halognn's epoch also samples and gathers, beside training. Without torch only halognn is measured;
without torch_geometric PyG is left out. A line says so.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST_STEP = 1e-5


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    add = p.add_argument
    add("--work", type=pathlib.Path, required=True,
        help="a directory for all that is written; it must not hold an earlier comparison")
    add("--halognn", default=ROOT / "bin/halognn", help="the program")
    add("--data", type=pathlib.Path, help="a DATASET (default: generated)")
    add("--parts", type=pathlib.Path, help="the same in one part (default: partitioned)")
    add("--vertices", type=int, default=1_000_000)
    add("--degree", type=int, default=20)
    add("--columns", type=int, default=128, help="features of a vertex")
    add("--classes", type=int, default=32)
    add("--hidden", type=int, default=256)
    add("--fanouts", default="15,10,5", help="seed hop first")
    add("--batch", type=int, default=1024)
    add("--epochs", type=int, default=3, help="that halognn trains")
    add("--steps", type=int, default=100,
        help="whose blocks are written, and which PyTorch trains; about 25 MB of host memory "
             "each by default")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--torch-device", choices=["cuda", "cpu"], help="for PyTorch, if another")
    add("--features", choices=["device", "host"], default="device", help="where feature rows lie")
    add("--precisions", default="float32",
        help="of PyTorch's products, with commas: float32, tf32, bf16 (autocast)")
    add("--tolerance", type=float, default=1e-3, help="of losses, relative")
    o = p.parse_args()
    o.torch_device = o.torch_device or o.device
    return o


def halognn(o, *args):
    run = subprocess.run([o.halognn, *map(str, args)], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"halognn {args[0]} ended with exit code {run.returncode}\n{run.stdout}")


def train_halognn(o):
    """Writes data, parts, blocks and a run. Returns the run's summary and its losses by
    (epoch, step)."""
    if o.data is None:
        o.data = o.work / "data"
        halognn(o, "generate", "--kind", "rmat", "--vertices", o.vertices, "--degree", o.degree,
                "--features", o.columns, "--classes", o.classes,
                "--seed", 1, "--out", o.data)
    if o.parts is None:
        o.parts = o.work / "parts"
        halognn(o, "partition", "--data", o.data, "--parts", 1, "--method", "contiguous",
                "--seed", 1, "--out", o.parts)
    keys = {
        "data.parts": o.parts, "run.dir": o.work / "run",
        "model.layers": len(o.fanouts.split(",")), "model.hidden": o.hidden, "model.dropout": 0,
        "sample.fanouts": o.fanouts, "sample.batch": o.batch,
        "pipeline.depth": len(os.sched_getaffinity(0)),  # all cores prepare minibatches
        "train.epochs": o.epochs, "train.eval_every": 0, "train.eval_mode": "sampled",
        "compute.device": o.device, "compute.gpu_rows": int(o.features == "device"),
    }
    config = ["--config", ROOT / "inputs/reference.yaml"]
    for key, value in keys.items():
        config += ["--set", f"{key}={value}"]
    halognn(o, "blocks", *config, "--ranks", 1, "--steps", o.steps, "--out", o.work / "blocks")
    halognn(o, "train", *config)
    summary = json.loads((o.work / "run/summary.json").read_text())
    records = map(json.loads, (o.work / "run/metrics.jsonl").read_text().splitlines())
    return summary, {(r["epoch"], r["step"]): r["loss"] for r in records if r["kind"] == "step"}


def load_safetensors(path, torch):
    import numpy as np  # imported here, as torch is: without them only halognn is measured

    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    data = raw[8 + n :]
    cut = lambda t: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).copy()
    return {name: torch.from_numpy(cut(t)) for name, t in header.items()}


def convolutions(torch):
    """Returns SAGEConv of each program. Both are called with (sources, destinations) and edges
    [2,E], (source, destination)."""

    class SAGEConv(torch.nn.Module):
        def __init__(self, cols, out):
            super().__init__()
            self.lin_l = torch.nn.Linear(cols, out)
            self.lin_r = torch.nn.Linear(cols, out, bias=False)

        def forward(self, x, edges):
            sources, own = x
            ones = torch.ones(edges.shape[1], device=own.device)
            degree = torch.zeros(len(own), device=own.device).index_add_(0, edges[1], ones)
            total = torch.zeros_like(own).index_add(0, edges[1], sources.index_select(0, edges[0]))
            return self.lin_l(total / degree.clamp(min=1)[:, None]) + self.lin_r(own)

    found = {f"torch {torch.__version__}, index_add": SAGEConv}
    if importlib.util.find_spec("torch_geometric") is None:
        print("not run: PyTorch Geometric: torch_geometric is not installed")
    else:
        import torch_geometric

        found[f"PyG {torch_geometric.__version__}, SAGEConv"] = torch_geometric.nn.SAGEConv
    return found


class Work:
    """The minibatches of each step on the host, pinned if the device is a GPU; and the features."""

    def __init__(self, o, torch):
        import numpy as np

        self.torch, self.on_host = torch, o.features == "host"
        self.device = torch.device(o.torch_device)
        self.described = json.loads((o.work / "blocks/blocks.json").read_text())
        self.steps = {}
        for m in self.described["minibatches"]:
            array = lambda name: np.load(o.work / "blocks" / m["dir"] / f"{name}.npy")
            tensor = lambda name, kind: self.host(array(name).astype(kind))
            blocks = []
            for l, size in enumerate(m["layers"]):
                target = np.repeat(np.arange(size["destinations"]), np.diff(array(f"indptr-{l}")))
                edges = np.stack([array(f"indices-{l}"), target]).astype(np.int64)
                blocks.append((self.host(edges), size["destinations"]))
            if self.described["model"]["task"] == "multiclass":
                truth = tensor("labels", np.int64)
            else:
                truth = tensor("targets", np.float32)
            item = (m, tensor("frontier", np.int64), blocks, truth)
            self.steps.setdefault((m["epoch"], m["step"]), []).append(item)
        features = torch.from_numpy(np.load(o.data / "features.npy").astype(np.float32))
        self.features = features if self.on_host else features.to(self.device)
        most = max(len(frontier) for items in self.steps.values() for _, frontier, _, _ in items)
        self.rows = self.host(np.zeros((most, features.shape[1]), np.float32))

    def host(self, array):
        t = self.torch.from_numpy(array)
        return t.pin_memory() if self.device.type == "cuda" else t

    def up(self, t):
        return t.to(self.device, non_blocking=True)

    def synced(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def input(self, frontier):
        if not self.on_host:
            return self.features.index_select(0, self.up(frontier))
        rows = self.rows[: len(frontier)]
        if self.device.type == "cuda":
            # the rows of the step before may still be under way
            self.torch.cuda.current_stream().synchronize()
        self.torch.index_select(self.features, 0, frontier, out=rows)
        return self.up(rows)


class SAGE:
    """A model with its optimiser."""

    def __init__(self, conv, work, weights, precision):
        self.precision = precision
        torch, m, p = work.torch, work.described["model"], work.described["optimizer"]
        if m["kind"] != "sage" or m["norm"] != "none" or m["dropout"] != 0:
            sys.exit(f"this script knows GraphSAGE without norms and dropout, not {m}")
        widths = [m["in"]] + [m["hidden"]] * (m["layers"] - 1) + [m["out"]]
        convs = torch.nn.ModuleList(conv(a, b) for a, b in zip(widths, widths[1:]))
        self.net = torch.nn.ModuleDict({"convs": convs})
        self.net.load_state_dict(weights)  # strict, as the names are PyG's
        self.net.to(work.device)
        self.work, self.multiclass = work, m["task"] == "multiclass"
        if p["kind"] == "sgd":
            momentum = {"momentum": p["momentum"]}
        else:
            momentum = {"betas": (p["beta1"], p["beta2"]), "eps": p["eps"]}
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam,
                "adamw": torch.optim.AdamW}[p["kind"]]
        fused = {"fused": True} if work.device.type == "cuda" else {}
        self.optimizer = kind(self.net.parameters(), lr=0.0, weight_decay=p["weight_decay"],
                              **momentum, **fused)

    def step(self, items):
        """Trains the minibatches of a step and returns its loss, on the device."""
        f, up, losses = self.work.torch.nn.functional, self.work.up, []
        self.optimizer.zero_grad()
        for m, frontier, blocks, truth in items:
            x, convs = self.work.input(frontier), self.net["convs"]
            with self.work.torch.autocast(self.work.device.type, self.work.torch.bfloat16,
                                          enabled=self.precision == "bf16"):
                for i, (edges, n) in enumerate(blocks):
                    x = convs[i]((x, x[:n]), up(edges))
                    x = x if i + 1 == len(blocks) else x.relu()
            x = x.float()
            if self.multiclass:
                loss = f.cross_entropy(x, up(truth), reduction="sum") / m["global_seeds"]
            else:
                loss = f.binary_cross_entropy_with_logits(x, up(truth), reduction="sum")
                loss = loss / (m["global_seeds"] * x.shape[1])
            loss.backward()
            losses.append(loss.detach())
        for group in self.optimizer.param_groups:
            group["lr"] = items[0][0]["lr"]
        self.optimizer.step()
        return sum(losses)


def train_torch(conv, work, weights, precision):
    """Returns the losses by (epoch, step); the median seconds of a step, with the device
    synchronised after each; and the mean without that."""
    work.torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model, losses, seconds = SAGE(conv, work, weights, precision), {}, []
    for at, items in work.steps.items():
        begin = work.synced()
        loss = model.step(items)
        seconds.append(work.synced() - begin)
        losses[at] = float(loss)
    begin = work.synced()
    for items in work.steps.values():
        model.step(items)
    return losses, statistics.median(seconds), (work.synced() - begin) / len(work.steps)


def differences(losses, others):
    """Returns the relative difference of the first step, and the largest of all."""
    all_of = [abs(losses[at] - others[at]) / max(1e-30, abs(others[at])) for at in losses]
    return all_of[0], max(all_of)


def main():
    o = options()
    o.work.mkdir(parents=True, exist_ok=True)
    summary, trained = train_halognn(o)
    steps = summary["steps_per_epoch"]
    rows = [("halognn", summary["device"], "", "", 1e3 * summary["epoch_seconds"] / steps,
             summary["epoch_seconds"])]
    agree, missing = True, None
    if importlib.util.find_spec("torch") is None:
        missing = "PyTorch and PyG: torch is not installed"
    else:
        import torch

        if o.torch_device == "cuda" and not torch.cuda.is_available():
            missing = "PyTorch and PyG: torch sees no GPU"
    if missing:
        print(f"not run: {missing}")
    else:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        work = Work(o, torch)
        weights = load_safetensors(o.work / "blocks/initial.safetensors", torch)
        name = f"cpu, {torch.get_num_threads()} threads"
        if o.torch_device == "cuda":
            name = torch.cuda.get_device_name()
        for program, conv in convolutions(torch).items():
            for precision in o.precisions.split(","):
                losses, synced, each = train_torch(conv, work, weights, precision)
                first, most = differences(losses, trained)
                of = "" if precision == "float32" else f", {precision}"
                agree &= bool(of) or first <= FIRST_STEP and most <= o.tolerance
                rows.append((program + of, name, f"{first:.1e}", f"{most:.1e}", 1e3 * synced,
                             each * steps))
    compared = "halognn alone"
    if not missing:
        compared = (f"{min(o.steps, o.epochs * steps)} steps compared; losses beside halognn's, "
                    "relative")
    print(f"\n{compared}; {steps} steps an epoch; times with the device synchronised")
    print(f"{'':<28} {'first loss':>10} {'all losses':>10} {'ms a step':>10} {'s an epoch':>10}"
          "  device")
    for program, device, first, most, step, epoch in rows:
        print(f"{program:<28} {first:>10} {most:>10} {step:>10.2f} {epoch:>10.2f}  {device}")
    keys = ("program", "device", "first_loss", "all_losses", "step_ms", "epoch_seconds")
    text = json.dumps([dict(zip(keys, row)) for row in rows], indent=1)
    (o.work / "comparison.json").write_text(text + "\n")
    if not agree:
        sys.exit(f"the losses differ by more than {FIRST_STEP} at the first step or "
                 f"{o.tolerance} later: not the same work was done")


if __name__ == "__main__":
    main()
