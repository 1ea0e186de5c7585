"""Graphs of other libraries as arrays of NumPy."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Sequence

import numpy as np

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(repr=False)
class Graph:
    """A graph with features, labels and a split.

    edge_index: integers [2, E], sources and destinations, 0 to num_nodes-1
    x: numbers [N, F], or a sparse matrix of SciPy, or None
    y: [N] of classes (numbers, -1 or -100 for none, or words) or [N, C] of 0 and 1, or with
        write_dataset(task="regression") [N] or [N, C] of numbers, NaN for none; or None
    masks: {"train_mask": bool [N] or [N, splits], "val_mask": ..., "test_mask": ...}
    ids: [N] of integers or words, the ids of the vertices in the source, or None
    more: other arrays of the source, by name: `halognn import` says which it does not read, and
        refuses those without which the graph would be another, such as edge_type
    undirected: each edge is given once; write_dataset adds its reverse
    origin: what is known of the source, kept with the dataset: format, in, name, split, notes,
        classes (their number: then y holds 0 to classes-1, and a class may have no vertex),
        class_names, and parts: name, first and count of joined graphs, by which split="A/B/C" splits
    """

    edge_index: np.ndarray
    num_nodes: int
    x: Any = None
    y: Optional[np.ndarray] = None
    masks: Dict[str, np.ndarray] = field(default_factory=dict)
    ids: Optional[np.ndarray] = None
    more: Dict[str, np.ndarray] = field(default_factory=dict)
    undirected: bool = False
    origin: Dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        arrays = {"x": self.x, "y": self.y, "ids": self.ids, **self.masks, **self.more}
        words = [f"{name} {list(np.shape(a))}" for name, a in arrays.items() if a is not None]
        edges = np.shape(self.edge_index)[-1]
        return f"Graph({', '.join([f'{self.num_nodes} vertices', f'{edges} edges', *words])})"

    def arrays(self) -> Dict[str, np.ndarray]:
        """The arrays by the names that `halognn import --format npz` knows."""
        arrays = dict(self.more, edge_index=self.edge_index, num_nodes=np.int64(self.num_nodes))
        x = self.x
        if hasattr(x, "tocsr"):
            x, matrix = None, x.tocsr()
            arrays.update(attr_indptr=matrix.indptr, attr_indices=matrix.indices,
                          attr_data=matrix.data, attr_shape=np.array(matrix.shape))
        for name, array in (("x", x), ("y", self.y), ("ids", self.ids), *self.masks.items()):
            if array is not None:
                arrays[name] = array
        return arrays


@dataclass
class TypedGraph:
    """A graph with vertex types and relations.

    nodes: {type: Graph} of which edge_index is not read: num_nodes, x, y, masks, ids of its vertices
    edges: {(source, name, target): integers [2, E]}, vertices numbered within their type
    reverse: write_dataset adds the reverse of every relation, as (target, "rev_" + name, source)
    more: {(source, name, target): {name of an array: array}} of the source, none of which
        `halognn import` reads: it says so
    """

    nodes: dict
    edges: dict
    reverse: bool = False
    origin: dict = field(default_factory=dict)
    more: dict = field(default_factory=dict)

    def arrays(self):
        """The arrays by the names that `halognn import --format npz` knows."""
        arrays = {"edge_index," + ",".join(relation): pairs for relation, pairs in self.edges.items()}
        for relation, others in self.more.items():
            arrays.update({",".join([name, *relation]): array for name, array in others.items()})
        for kind, graph in self.nodes.items():
            for name, array in graph.arrays().items():
                if name != "edge_index":
                    arrays[f"{name},{kind}"] = array
        return arrays


NO_EDGES = np.zeros((2, 0), dtype=np.int64)


def _sparse_tensor(array):
    """Whether it is a tensor of PyTorch in one of its sparse layouts."""
    layout = str(getattr(array, "layout", ""))
    return getattr(array, "is_sparse", False) or layout.startswith("torch.sparse")


def numpy_of(array, name="the array"):
    """A tensor or sequence as a NumPy array in C order."""
    if _sparse_tensor(array):
        raise ValueError(f"{name} is sparse, as features alone may be: {name}.to_dense() "
                         "makes it dense")
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # NumPy has no such type
            array = array.float()
        array = array.numpy()
    if hasattr(array, "toarray"):
        raise ValueError(f"{name} is sparse, as features alone may be: {name}.toarray() "
                         "makes it dense")
    array = np.ascontiguousarray(array)
    if array.dtype == object:
        array = array.astype(str)
    return array


def features_of(array, name="x"):
    """Features as a NumPy array or, where they are sparse, as a CSR matrix of SciPy."""
    if hasattr(array, "to_scipy"):  # of torch_sparse
        array = array.to_scipy(layout="csr")
    if hasattr(array, "tocsr"):
        return array.tocsr()
    if _sparse_tensor(array):
        import scipy.sparse
        entries = array.detach().cpu()
        if not entries.is_sparse:  # PyTorch 1 converts no tensor that has the form already
            entries = entries.to_sparse()
        entries = entries.coalesce()
        if entries.dense_dim():
            raise ValueError(f"{name} is sparse by rows alone: {name}.to_dense() makes it dense")
        return scipy.sparse.csr_matrix((numpy_of(entries.values()), entries.indices().numpy()),
                                       tuple(entries.shape))
    return numpy_of(array, name)


def from_pyg(data: Any) -> "Graph | TypedGraph":
    """A torch_geometric.data.Data or HeteroData object."""
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        return _typed_pyg(data)
    if getattr(data, "ptr", None) is not None and getattr(data, "num_graphs", 1) > 1:
        raise ValueError("this is a batch of graphs: graph-level tasks are not supported; give one "
                         "Data object")
    if getattr(data, "edge_index", None) is None:
        if getattr(data, "adj_t", None) is not None:
            raise ValueError("the edges are in adj_t; leave "
                             "torch_geometric.transforms.ToSparseTensor out, so that they are in edge_index")
        raise ValueError("the Data object has no edge_index")
    graph = Graph(numpy_of(data.edge_index, "edge_index"), int(data.num_nodes))
    names = data.keys() if callable(data.keys) else data.keys
    _take_pyg(graph, ((name, data[name]) for name in names))
    return graph


def _take_pyg(graph, items):
    """Puts the arrays of a store into the graph, but for its edges."""
    for name, value in items:
        if value is None or name in ("edge_index", "num_nodes"):
            continue
        if name == "x":
            graph.x = features_of(value)
        elif name == "y":
            graph.y = numpy_of(value, name)
        elif name in MASKS:
            graph.masks[name] = numpy_of(value, name)
        elif hasattr(value, "detach") or isinstance(value, np.ndarray):
            graph.more[name] = numpy_of(value, name)


def _typed_pyg(data):
    nodes = {}
    for kind in data.node_types:
        store = data[kind]
        graph = nodes[kind] = Graph(NO_EDGES, int(store.num_nodes))
        _take_pyg(graph, store.items())
    edges, more = {}, {}
    for relation in data.edge_types:
        if "edge_index" not in data[relation]:
            raise ValueError(f"the edges of {relation} are not in edge_index; leave "
                             "torch_geometric.transforms.ToSparseTensor out")
        edges[tuple(relation)] = numpy_of(data[relation].edge_index, "edge_index")
        more[tuple(relation)] = {
            name: numpy_of(value, name) for name, value in data[relation].items()
            if name != "edge_index" and (hasattr(value, "detach") or isinstance(value, np.ndarray))}
    return TypedGraph(nodes, edges, more=more)


def _take_dgl(graph, name, value, features, labels):
    """Puts an array of vertices into the graph; DGL's own begin with _."""
    if name == features:
        graph.x = numpy_of(value, name)
    elif name == labels:
        graph.y = numpy_of(value, name)
    elif name in MASKS:
        graph.masks[name] = numpy_of(value, name)
    elif not name.startswith("_"):
        graph.more[name] = numpy_of(value, name)


def _typed_dgl(g, features, labels):
    nodes = {}
    for kind in g.ntypes:
        graph = nodes[kind] = Graph(NO_EDGES, g.num_nodes(kind))
        for name, value in g.nodes[kind].data.items():
            _take_dgl(graph, name, value, features, labels)
    edges, more = {}, {}
    for relation in g.canonical_etypes:
        source, target = g.edges(etype=relation, order="eid")
        edges[relation] = np.stack([numpy_of(source), numpy_of(target)])
        more[relation] = {name: numpy_of(value, name) for name, value in g.edges[relation].data.items()
                          if not name.startswith("_")}
    return TypedGraph(nodes, edges, more=more)


def from_dgl(g: Any, features: str = "feat", labels: str = "label") -> "Graph | TypedGraph":
    """A DGLGraph, of one type or several; features and labels are names in g.ndata."""
    if not g.is_homogeneous:
        return _typed_dgl(g, features, labels)
    source, target = g.edges(order="eid")
    graph = Graph(np.stack([numpy_of(source), numpy_of(target)]), g.num_nodes())
    for name, value in g.ndata.items():
        _take_dgl(graph, name, value, features, labels)
    for name, value in g.edata.items():
        if not name.startswith("_"):
            name_here = "edge_weight" if name in ("w", "weight") else "edge_" + name
            graph.more[name_here] = numpy_of(value, name)
    return graph


def from_scipy(adjacency: Any, x: Any = None, y: Any = None, train_mask: Any = None,
               val_mask: Any = None, test_mask: Any = None) -> Graph:
    """A square scipy.sparse matrix: an entry in row r and column c is an edge r -> c."""
    rows, columns = adjacency.shape
    if rows != columns:
        raise ValueError(f"the matrix is {rows} x {columns}; want a row and a column for each "
                         "vertex")
    entries = adjacency.tocoo()
    graph = Graph(np.stack([entries.row, entries.col]).astype(np.int64), rows)
    graph.x = None if x is None else features_of(x)
    graph.y = None if y is None else numpy_of(y, "y")
    masks = zip(MASKS, (train_mask, val_mask, test_mask))
    graph.masks = {name: numpy_of(mask, name) for name, mask in masks if mask is not None}
    if entries.nnz and np.any(entries.data != entries.data[0]):
        graph.more["edge_weight"] = np.asarray(entries.data)
    return graph


def from_networkx(g: Any, features: Sequence[str] = (), label: Optional[str] = None) -> Graph:
    """A networkx graph; features and label are names of vertex attributes.

    Vertices are numbered in the order of g.nodes, whose words or integers are kept as ids. An edge
    of an undirected graph is stored in both directions. Multiple edges become one when the dataset
    is written.
    """
    nodes = list(g.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    edges = np.array([(place[u], place[v]) for u, v in g.edges()], dtype=np.int64).reshape(-1, 2)
    if not g.is_directed():
        edges = np.concatenate([edges, edges[:, ::-1]])
    graph = Graph(np.ascontiguousarray(edges.T), len(nodes))
    numbered = all(type(n) is int for n in nodes)
    graph.ids = np.array(nodes if numbered else [str(n) for n in nodes])
    if len(set(graph.ids.tolist())) < len(nodes):
        raise ValueError("two vertices have the same text as their name; networkx.relabel_nodes "
                         "gives them others")

    def column(name):
        values = [g.nodes[n].get(name) for n in nodes]
        missing = [n for n, value in zip(nodes, values) if value is None]
        if missing:
            raise ValueError(f"vertex {missing[0]!r} has no attribute {name!r}")
        return values

    if features:
        parts = [np.asarray(column(name), dtype=np.float32).reshape(len(nodes), -1)
                 for name in features]
        graph.x = np.ascontiguousarray(np.concatenate(parts, axis=1))
    if label is not None:
        graph.y = numpy_of(column(label), label)
    weighted = any("weight" in attributes for _, _, attributes in g.edges(data=True))
    if weighted:
        weight = np.array([a.get("weight", 1) for _, _, a in g.edges(data=True)], dtype=np.float64)
        graph.more["edge_weight"] = weight if g.is_directed() else np.concatenate([weight, weight])
    return graph
