"""Graphs into halognn, and runs out of it.

    from_pyg, from_dgl, from_scipy, from_networkx   a library's graph -> Graph or, with vertex types,
                                                    TypedGraph: arrays of NumPy
    formats.read(format, path)                      a published graph: planetoid, saint, gemsec,
                                                    musae, mat
    write_dataset(directory, graph)                 a DATASET directory, by `halognn import`
    partition(directory, dataset, parts)            a PARTS directory
    train(parts, run, ...) -> Run                   trains, by `halognn train`, and reads the run
    infer(run, ...) -> array                        classes, probabilities or hidden rows of vertices,
                                                    also of another graph
    read_run(directory) -> Run                      summary, metrics and weights of a run
    to_torch, to_pyg, to_dgl(run)                   its model in PyTorch, with the weights
    source_ids(dataset)                             the id of each vertex in the source

The checks of a graph are those of `halognn import`: what it refuses is a HalognnError here, with
its sentence. No library is imported here but NumPy;
to_torch and its like import theirs when they are called.
"""

from typing import Any

from . import formats
from .graph import Graph, TypedGraph, from_dgl, from_networkx, from_pyg, from_scipy
from .program import HalognnError, infer, partition, train, write_dataset
from .run import Run, read_run, source_ids


def to_torch(run: Any) -> Any:
    """The model of a Run, or of its directory, of torch alone: model(x, edge_index, edge_weight=None)."""
    from . import models
    return models.to_torch(run)


def to_pyg(run: Any) -> Any:
    """The model of a run in layers of PyTorch Geometric: model(x, edge_index, edge_weight=None)."""
    from . import models
    return models.to_pyg(run)


def to_dgl(run: Any) -> Any:
    """The model of a run in layers of DGL: model(g, x, edge_weight=None)."""
    from . import models
    return models.to_dgl(run)


__all__ = [
    "Graph", "HalognnError", "Run", "TypedGraph", "formats", "from_dgl", "from_networkx", "from_pyg",
    "from_scipy", "infer", "partition", "read_run", "source_ids", "to_dgl", "to_pyg", "to_torch",
    "train", "write_dataset",
]
