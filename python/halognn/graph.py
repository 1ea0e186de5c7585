"""Graphs of other libraries as arrays of NumPy."""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import numpy as np

MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(repr=False)
class Graph:
    """A graph with features, labels and a split.

    edge_index: integers [2, E], sources and destinations, 0 to num_nodes-1
    x: numbers [N, F], or a sparse matrix of SciPy, or None
    y: [N] of classes (numbers, -1 or -100 for none, or words) or [N, C] of 0 and 1, or with
        write_dataset(task="regression") [N] or [N, C] of numbers, NaN for none; or None
    masks: {"train_mask": bool [N] or [N, splits], "val_mask": ..., "test_mask": ...}, or lists of
        vertices by the same names without _mask (SPLITS has all spellings)
    ids: [N] of integers or words, the ids of the vertices in the source, or None
    more: other arrays of the source, by name: `halognn import` says which it does not read, and
        refuses those without which the graph would be another, such as edge_type
    undirected: each edge is given once; write_dataset adds its reverse
    left: what the source has and this graph lacks: write_dataset warns of it
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
    left: List[str] = field(default_factory=list)

    def __repr__(self) -> str:
        arrays = {"x": self.x, "y": self.y, "ids": self.ids, **self.masks, **self.more}
        words = [f"{name} {list(np.shape(a))}" for name, a in arrays.items() if a is not None]
        edges = np.shape(self.edge_index)[-1]
        return f"Graph({', '.join([f'{self.num_nodes} vertices', f'{edges} edges', *words])})"

    def arrays(self) -> Dict[str, np.ndarray]:
        """The arrays by the names that `halognn import --format npz` knows."""
        arrays = dict(edge_index=self.edge_index, num_nodes=np.int64(self.num_nodes))
        for name, value in self.more.items():
            if isinstance(value, dict):
                left = []
                take_other(arrays, left, name, value)
                if left:
                    raise ValueError(f"{left[0]} is a dict; want an array, or a dict of the lists train, valid and test")
            else:
                arrays[name] = value
        x = self.x
        if hasattr(x, "tocsr"):
            x, matrix = None, x.tocsr()
            arrays.update(attr_indptr=matrix.indptr, attr_indices=matrix.indices,
                          attr_data=matrix.data, attr_shape=np.array(matrix.shape))
        for name, array in (("x", x), ("y", self.y), ("ids", self.ids)):
            if array is not None:
                arrays[name] = array
        for name, array in self.masks.items():
            if array is not None:
                take_split(arrays, name, array)
        return arrays


@dataclass
class TypedGraph:
    """A graph with vertex types and relations.

    nodes: {type: Graph} of which edge_index is not read: num_nodes, x, y, masks, ids of its vertices
    edges: {(source, name, target): integers [2, E]}, vertices numbered within their type
    reverse: write_dataset adds the reverse of every relation, as (target, "rev_" + name, source)
    more: {(source, name, target): {name of an array: array}} of the source, of which
        `halognn import` reads edge_weight, and says which it does not
    """

    nodes: dict
    edges: dict
    reverse: bool = False
    origin: dict = field(default_factory=dict)
    more: dict = field(default_factory=dict)
    left: list = field(default_factory=list)

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
    if isinstance(array, np.ma.MaskedArray):
        array = unmasked(array)
    try:
        array = np.asarray(array, order="C")
    except ValueError:
        raise ValueError(f"{name} has rows of different lengths; make them alike, or give an array of "
                         "NumPy") from None
    if array.dtype == object:
        odd = next((v for v in array.flat if isinstance(v, (list, tuple, dict, set, np.ndarray))), None)
        if odd is not None:
            raise ValueError(f"{name} holds a {type(odd).__name__}, {odd!r:.40}; want numbers or words, as many "
                             "in each row")
        array = np.array(["" if v is None else str(v) for v in array.flat]).reshape(array.shape)
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        array = array.astype(str)  # the program reads 64 bits with a sign
    elif array.dtype.kind not in "biufSU":
        raise ValueError(f"{name} is an array of {array.dtype}; want numbers or words")
    return array


def unmasked(array):
    """A masked array with what is masked as none: NaN, or an empty word."""
    if not np.ma.is_masked(array):
        return array.data
    if array.dtype.kind in "biuf":
        return array.astype(np.float64).filled(np.nan)
    words = array.data.astype(object)
    words[np.ma.getmaskarray(array)] = None
    return words


# What the lists of a split are called, also with _mask, _idx, _index, _indices or _ids behind, or before with _ behind.
SPLITS = {"train": "train", "training": "train", "valid": "valid", "val": "valid", "validation": "valid",
          "dev": "valid", "test": "test", "testing": "test"}
KINDS = ("is", "mask", "masks", "idx", "index", "indices", "ids")
KNOWN = [f"{part}_{kind}" for part in ("train", "valid", "val", "test") for kind in ("mask", "idx")]  # to the program


def split_of(name):
    """train, valid or test, for a name of such a list or mask, else None."""
    words = str(name).lower().replace("-", "_").split("_")
    if len(words) == 2:
        words = [w for w in words if w not in KINDS]
    return SPLITS.get(words[0]) if len(words) == 1 else None


def take_split(arrays, name, value):
    """Puts a list of vertices or a mask among the arrays under the name by which the program knows it."""
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(0) if "mask" in str(name) or value.dtype.kind == "b" else value.compressed()
    array = numpy_of(np.sort(list(value)) if isinstance(value, (set, frozenset)) else value, name)
    if array.size == 0 and array.dtype.kind == "f":  # an empty list
        array = array.astype(np.int64)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise ValueError(f"{name} is no list of vertices, nor a mask of them: give numbers of rows, or bools")
    # a list that repeats 0 and 1 is a mask
    marks = array.dtype.kind == "b" or "mask" in str(name).lower() or array.size > 2 and np.isin(array, (0, 1)).all()
    part = split_of(name)
    key = name
    if part and not (name in KNOWN and name.endswith("mask") == bool(marks)):
        key = f"{part}_{'mask' if marks else 'idx'}"
    for other in KNOWN:
        if other in arrays and split_of(other) == part and not np.array_equal(members(other, arrays[other]),
                                                                              members(key, array)):
            raise ValueError(f"{name} and {other} are two lists of one part of the split, and differ; leave one out")
    arrays[key] = array


def members(name, array):
    """The vertices of a list or a mask of this name."""
    return np.argwhere(array) if name.endswith("mask") else np.sort(array, axis=None).reshape(-1, 1)


def take_other(more, left, name, value, where="", origin=None):
    """Puts what a library keeps under a name of its own among the arrays, or says that it is left out."""
    if isinstance(value, dict) and value and all(split_of(key) for key in value):
        parts = dict(more)
        if any(isinstance(part, dict) for part in value.values()):  # of several types
            left.append(where + name)
            return
        try:
            for part, part_of in value.items():
                if part_of is not None:
                    take_split(parts, part, part_of)
        except ValueError as error:
            raise ValueError(f"{where}{name}: {error}; leave {name} out, or give the split by split=") from None
        more.update(parts)
        if origin is not None:
            origin.setdefault("split", name)
        return
    # ids may be those of a source, and of is_valid alone the program knows whether it is of a split
    if split_of(name) and not str(name).lower().endswith("ids") and not str(name).lower().startswith("is"):
        try:
            take_split(more, name, value)
        except ValueError:
            left.append(where + name)
        return
    if isinstance(value, (list, tuple)) or hasattr(value, "detach") or isinstance(value, np.ndarray):
        try:
            more[name] = numpy_of(value, name)
            return
        except ValueError:
            pass
    left.append(where + name)


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


def _take_pyg(graph, items, where=""):
    """Puts the arrays of a store into the graph, but for its edges."""
    for name, value in items:
        if value is None or name in ("edge_index", "num_nodes"):
            continue
        if name == "x":
            graph.x = features_of(value)
        elif name == "y":
            graph.y = numpy_of(value, name)
        elif name in MASKS:
            graph.masks[name] = value
        else:
            take_other(graph.more, graph.left, name, value, where, graph.origin)


def _typed_pyg(data):
    nodes = {}
    for kind in data.node_types:
        store = data[kind]
        graph = nodes[kind] = Graph(NO_EDGES, int(store.num_nodes))
        _take_pyg(graph, store.items(), kind + ": ")
    edges, more, left = {}, {}, []
    for relation in data.edge_types:
        if "edge_index" not in data[relation]:
            raise ValueError(f"the edges of {relation} are not in edge_index; leave "
                             "torch_geometric.transforms.ToSparseTensor out")
        edges[tuple(relation)] = numpy_of(data[relation].edge_index, "edge_index")
        more[tuple(relation)] = {}
        for name, value in data[relation].items():
            if name != "edge_index" and value is not None:
                take_other(more[tuple(relation)], left, name, value, ",".join(relation) + ": ")
    return TypedGraph(nodes, edges, more=more, left=left + [n for g in nodes.values() for n in g.left])


def _take_dgl(graph, name, value, features, labels):
    """Puts an array of vertices into the graph; DGL's own begin with _."""
    if name == features:
        graph.x = numpy_of(value, name)
    elif name == labels:
        graph.y = numpy_of(value, name)
    elif name in MASKS:
        graph.masks[name] = value
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
    known = {"weight": "edge_weight", "w": "edge_weight", "type": "edge_type", "etype": "edge_type",
             "rel_type": "edge_type"}
    rank = {name: i for i, name in enumerate(known)}
    for name in sorted(g.edata, key=lambda name: rank.get(name, len(rank))):  # of two of a name the first has it
        if not name.startswith("_"):
            key = known.get(name)
            graph.more[key if key and key not in graph.more else "edge_" + name] = numpy_of(g.edata[name], name)
    for data, name in (g.ndata, "node_type"), (g.edata, "edge_type"):  # of a graph that had types
        if "_TYPE" in data and len(np.unique(numpy_of(data["_TYPE"]))) > 1:
            graph.more[name if name not in graph.more else name + "_of_dgl"] = numpy_of(data["_TYPE"])
    return graph


def from_scipy(adjacency: Any, x: Any = None, y: Any = None, train_mask: Any = None,
               val_mask: Any = None, test_mask: Any = None) -> Graph:
    """A square scipy.sparse matrix: an entry in row r and column c that is not 0 is an edge r -> c, with the
    entry for its weight unless all are 1."""
    rows, columns = adjacency.shape
    if rows != columns:
        raise ValueError(f"the matrix is {rows} x {columns}; want a row and a column for each "
                         "vertex")
    entries = weighed_entries(adjacency)
    graph = Graph(np.stack([entries.row, entries.col]).astype(np.int64), rows)
    graph.x = None if x is None else features_of(x)
    graph.y = None if y is None else numpy_of(y, "y")
    masks = zip(MASKS, (train_mask, val_mask, test_mask))
    graph.masks = {name: mask for name, mask in masks if mask is not None}
    if np.any(entries.data != 1):
        graph.more["edge_weight"] = np.asarray(entries.data, dtype=np.float64)
    return graph


def weighed_entries(matrix):
    """The entries of a sparse matrix that are not 0, in COO form: those of one place are added up, however
    the matrix is stored."""
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"the matrix holds {matrix.dtype}; want real numbers")
    # in float64, for a sum may be too large for the type of the matrix, and tocsr adds up, too, as
    # some versions' astype does
    entries = matrix.tocoo(copy=True)
    entries.data = entries.data.astype(np.float64)
    matrix = entries.tocsr()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix.tocoo()


def from_networkx(g: Any, features: Sequence[str] = (), label: Optional[str] = None) -> Graph:
    """A networkx graph; features and label are names of vertex attributes.

    Vertices are numbered in the order of g.nodes, whose words or integers are kept as ids. An edge
    of an undirected graph is stored in both directions. Multiple edges become one when the dataset
    is written.
    """
    nodes = list(g.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    given = list(g.edges(data=True))
    edges = np.array([(place[u], place[v]) for u, v, _ in given], dtype=np.int64).reshape(-1, 2)
    once = np.arange(0) if g.is_directed() else np.flatnonzero(edges[:, 0] != edges[:, 1])  # a loop is its reverse
    graph = Graph(np.ascontiguousarray(np.concatenate([edges, edges[once][:, ::-1]]).T), len(nodes))
    numbered = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and -(1 << 63) <= n < 1 << 63
                   for n in nodes)
    graph.ids = np.array(nodes if numbered else [str(n) for n in nodes], np.int64 if numbered else np.str_)
    if len(set(graph.ids.tolist())) < len(nodes):
        raise ValueError("two vertices have the same text as their name; networkx.relabel_nodes "
                         "gives them others")
    if features:
        graph.x = np.concatenate([_attribute_rows(g, name) for name in features], axis=1)
    if label is not None:
        graph.y = _labels(g, label)
    there = sorted({name for _, attributes in g.nodes(data=True) for name in map(str, attributes)})
    graph.left = [f"vertex attribute {name}" for name in there if name not in (*features, label)]
    graph.left += [f"edge attribute {name}" for name in sorted(
        {str(name) for _, _, attributes in given for name in attributes} - {"weight"})]
    weights = [attributes.get("weight") for _, _, attributes in given]
    if any(w is not None for w in weights):
        without = sum(w is None for w in weights)
        if without:
            graph.left.append(f"{without} of {len(weights)} edges have no attribute weight, and weigh 1; it")
        for (u, v, _), w in zip(given, weights):
            if w is not None and not isinstance(w, (int, float, np.number, np.bool_)):
                raise ValueError(f"the edge {u!r}, {v!r} has the weight {w!r:.40}; want a number")
        weight = np.array([1 if w is None else w for w in weights], dtype=np.float64)
        graph.more["edge_weight"] = np.concatenate([weight, weight[once]])
    return graph


def _attribute_rows(g, name):
    """A vertex attribute, numbers or lists of as many numbers, as rows of features."""
    rows = []
    for node in g.nodes:
        value = g.nodes[node].get(name)
        if value is None:
            raise ValueError(f"vertex {node!r} has no attribute {name!r}")
        try:
            row = np.asarray(value, dtype=np.float32).reshape(-1)
        except (TypeError, ValueError):
            raise ValueError(f"vertex {node!r}: attribute {name!r} is {value!r:.40}; want a number or a list of "
                             "numbers") from None
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"vertex {node!r}: attribute {name!r} has {len(row)} numbers, and {len(rows[0])} at "
                             "the vertices before; make them alike")
        rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, 1), np.float32)


def _labels(g, name):
    """A vertex attribute as labels; a vertex without it has none."""
    values = [g.nodes[node].get(name) for node in g.nodes]
    if values and all(v is None for v in values):
        raise ValueError(f"no vertex has an attribute {name!r}")
    if any(v is None for v in values) and all(isinstance(v, (int, float, np.number)) for v in values
                                              if v is not None):
        values = [np.nan if v is None else v for v in values]
    width = next((len(v) for v in values if isinstance(v, (list, tuple, np.ndarray))), 0)
    if width:
        values = [[np.nan] * width if v is None else v for v in values]
    return numpy_of(values, f"attribute {name!r}")
