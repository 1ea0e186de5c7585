"""What a run left, as NumPy arrays."""

import html
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List

import numpy as np


@dataclass(repr=False)
class Run:
    """A run directory.

    summary: summary.json, a dict; a metric without a value is None, and "no_value" says why
    metrics: the objects of metrics.jsonl in order: steps, epochs, evaluations (docs/metrics.md)
    weights: {name: float32 array}, named as PyTorch Geometric names them
    model: the metadata of the weights, all text: kind, layers, in, hidden, out, ...
    """

    directory: str
    summary: Dict[str, Any]
    metrics: List[Dict[str, Any]]
    weights: Dict[str, np.ndarray]
    model: Dict[str, str]

    def __repr__(self) -> str:
        return f"Run({self.directory!r}: {', '.join(f'{k} {v}' for k, v in self._facts().items())})"

    def _facts(self) -> Dict[str, str]:
        """What is worth a line, as text."""
        s, facts = self.summary, {"model": self.model.get("kind", "?")}
        for split in ("valid", "test"):
            value = s.get(split + "_metric")
            name = f"{split} {s.get('metric_name', 'metric')}"
            facts[name] = "none" if value is None else f"{value:.4f}"
        facts["epochs"] = f"{s.get('epochs')} (best {s.get('best_epoch')})"
        if s.get("epoch_seconds") is not None:
            facts["epoch"] = f"{s['epoch_seconds']:.3g} s"
        facts["ranks"] = str(s.get("ranks"))
        return facts

    def _repr_html_(self) -> str:
        """In a notebook: the facts, and curves of loss and validation over epochs."""
        cells = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>"
                        for k, v in self._facts().items())
        curves = "".join(
            _curve(title, *np.array([(line["epoch"], line[key]) for line in self.metrics
                                     if line.get("kind") == kind and line.get(key) is not None]
                                    or np.zeros((0, 2))).T)
            for title, kind, key in (("training loss", "epoch", "loss"),
                                     ("validation", "eval", "valid_metric")))
        return (f"<div><b>{html.escape(self.directory)}</b>"
                f"<div style='display:flex;flex-wrap:wrap'><table>{cells}</table>{curves}</div></div>")

    def column(self, name: str, kind: str = "epoch") -> np.ndarray:
        """The values of one key of the lines of a kind ("step", "epoch", ...), as an array.

        A metric without a value is NaN.
        """
        lines = [line for line in self.metrics if line.get("kind") == kind and name in line]
        if not lines:
            kinds = sorted({line.get("kind", "") for line in self.metrics})
            raise KeyError(f"no {name!r} in lines of kind {kind!r}; kinds are {kinds}")
        return np.array([np.nan if line[name] is None else line[name] for line in lines])


def _curve(title, x, y):
    """A small plot as SVG; with less than two points, nothing."""
    if len(x) < 2:
        return ""
    low, high = y.min(), y.max()
    across = 10 + 280 * (x - x[0]) / (x[-1] - x[0] or 1)
    down = 130 - 100 * (y - low) / (high - low or 1)
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down))
    dots = "".join(f"<circle cx='{a:.1f}' cy='{b:.1f}' r='3' fill='#0072b2'><title>epoch {e:g}: {v:.4g}"
                   "</title></circle>" for a, b, e, v in zip(across, down, x, y)) if len(x) <= 60 else ""
    return (f"<svg width='300' height='150' role='img' aria-label='{title}' font-size='11' "
            f"fill='currentColor'><text x='10' y='14'>{title}: {y[0]:.4g} to {y[-1]:.4g}, "
            f"epochs {x[0]:g} to {x[-1]:g}</text><polyline points='{path}' fill='none' "
            f"stroke='#0072b2' stroke-width='2'/>{dots}</svg>")


def read_run(directory: "os.PathLike[str] | str") -> Run:
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


def read_safetensors(path: "os.PathLike[str] | str"):
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


def source_ids(dataset: "os.PathLike[str] | str") -> np.ndarray:
    """The id in the source of each vertex of a DATASET: words, integers, or 0 to N-1."""
    names, numbers = (os.path.join(dataset, f"original_{kind}.npy") for kind in ("name", "id"))
    if os.path.exists(names):
        return np.array(np.load(names).tobytes().decode().split("\n")[:-1])
    if os.path.exists(numbers):
        return np.load(numbers)
    with open(os.path.join(dataset, "meta.json"), encoding="utf-8") as f:
        return np.arange(json.load(f)["vertices"])
