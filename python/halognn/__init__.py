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
    source_ids(dataset)                             the id of each vertex in the source

The checks of a graph are those of `halognn import`: what it refuses is a HalognnError here, with
its sentence. No library is imported here but NumPy.
"""

from . import formats
from .graph import Graph, TypedGraph, from_dgl, from_networkx, from_pyg, from_scipy
from .program import HalognnError, infer, partition, train, write_dataset
from .run import Run, read_run, source_ids

__all__ = [
    "Graph", "HalognnError", "Run", "TypedGraph", "formats", "from_dgl", "from_networkx", "from_pyg", "from_scipy",
    "infer", "partition", "read_run", "source_ids", "train", "write_dataset",
]
