"""What a run left, as NumPy arrays."""

import json
import os
from dataclasses import dataclass

import numpy as np


@dataclass
class Run:
    """A run directory.

    summary: summary.json, a dict; a metric without a value is None, and "no_value" says why
    metrics: the objects of metrics.jsonl in order: steps, epochs, evaluations (docs/metrics.md)
    weights: {name: float32 array}, named as PyTorch Geometric names them
    model: the metadata of the weights, all text: kind, layers, in, hidden, out, ...
    """

    directory: str
    summary: dict
    metrics: list
    weights: dict
    model: dict

    def column(self, name, kind="epoch"):
        """The values of one key of the lines of a kind ("step", "epoch", ...), as an array.

        A metric without a value is NaN.
        """
        lines = [line for line in self.metrics if line.get("kind") == kind and name in line]
        if not lines:
            kinds = sorted({line.get("kind", "") for line in self.metrics})
            raise KeyError(f"no {name!r} in lines of kind {kind!r}; kinds are {kinds}")
        return np.array([np.nan if line[name] is None else line[name] for line in lines])


def read_run(directory):
    """Read a finished run."""
    path = os.path.join(directory, "summary.json")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: {directory} is no run directory, or the run has not "
                                "finished")
    with open(path, encoding="utf-8") as f:
        summary = json.load(f)
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as f:
        metrics = [json.loads(line) for line in f]
    weights, model = read_safetensors(os.path.join(directory, "model.safetensors"))
    return Run(str(directory), summary, metrics, weights, model)


def read_safetensors(path):
    """Read a file of float32 tensors: eight bytes of length, a JSON header, the elements."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if not 0 < length <= os.path.getsize(path) - 8:
            raise ValueError(f"{path}: not a safetensors file, or cut short; copy it again")
        header = json.loads(f.read(length))
        data = f.read()
    model = header.pop("__metadata__", {})
    weights = {}
    for name, about in header.items():
        if about["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {about['dtype']}, not F32")
        begin, end = about["data_offsets"]
        weights[name] = np.frombuffer(data[begin:end], "<f4").reshape(about["shape"]).copy()
    return weights, model


def source_ids(dataset):
    """The id in the source of each vertex of a DATASET: words, integers, or 0 to N-1."""
    names, numbers = (os.path.join(dataset, f"original_{kind}.npy") for kind in ("name", "id"))
    if os.path.exists(names):
        return np.array(np.load(names).tobytes().decode().split("\n")[:-1])
    if os.path.exists(numbers):
        return np.load(numbers)
    with open(os.path.join(dataset, "meta.json"), encoding="utf-8") as f:
        return np.arange(json.load(f)["vertices"])
