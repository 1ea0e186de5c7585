"""Published graphs in formats of their own: readers that make a Graph of them.

    read("planetoid", directory)       ind.NAME.*, pickles of NumPy and SciPy
    read("saint", directory)           GraphSAINT: adj_full.npz, feats.npy, class_map.json, role.json
    read("gemsec", directory)          XX_edges.csv, XX_genres.json
    read("musae", directory)           XX_edges.csv, XX_features.json, XX_target.csv
    read("mat", file or directory)     MATLAB: attributed graphs, Facebook100
    python3 -m halognn FORMAT IN OUT   the same into a DATASET, with flags of `halognn import`

All but gemsec need SciPy; mat of version 7.3 needs h5py.
"""

import collections
import csv
import glob
import json
import os
import pickle

import numpy as np

from .graph import Graph, weighed_entries


class FormatError(ValueError):
    """A file is not as its format says; the text names it and what is wrong."""


def read(form, path, split=""):
    """Read a graph; form is one of FORMATS. Its origin is kept with the dataset. split is the one
    that the import will be given: the graphs of musae are joined in the order in which it names them."""
    if form not in FORMATS:
        raise ValueError(f"format {form!r} is unknown; there are {', '.join(FORMATS)}; "
                         "`halognn import` reads others")
    path = os.fspath(path)
    graph = musae(path, split) if form == "musae" else FORMATS[form](path)
    graph.origin = {"format": form, "in": os.path.basename(os.path.abspath(path)),
                    "name": name_of(path), **graph.origin}
    return graph


def name_of(path):
    """The name of a dataset that was read from here: the last element without its extensions."""
    return os.path.basename(os.path.abspath(path)).split(".")[0]


def one_of(path, suffix, what):
    """The path up to the suffix: as given, or of the only such file in a directory."""
    if os.path.exists(path + suffix):
        return path
    found = sorted(glob.glob(os.path.join(glob.escape(path), "*" + suffix)))
    if len(found) != 1:
        raise FormatError(f"{path}: {len(found)} files *{suffix}; name the directory of a {what} data "
                          f"set, or its files up to {suffix}")
    return found[0].removesuffix(suffix)


def parsed(path, read_file):
    """What a file holds, or an error that names it."""
    with open(path, "rb") as f:
        try:
            return read_file(f)
        except FormatError as error:
            raise FormatError(f"{path}: {error}" if path not in str(error) else str(error)) from None
        except ImportError:
            raise
        except Exception as error:  # damaged files fail in many ways
            raise FormatError(f"{path}: not readable ({type(error).__name__}: {error}); fetch the file "
                              "again") from None


def csr(matrix):
    import scipy.sparse
    return scipy.sparse.csr_matrix(matrix)


# Matrices and arrays of SciPy that a pickle may hold.
SPARSE = [f"{form}_{kind}" for form in ("csr", "csc", "coo", "lil") for kind in ("matrix", "array")]


class Arrays(pickle.Unpickler):
    """Unpickles arrays of NumPy, matrices of SciPy and containers; nothing else is called."""

    def find_class(self, module, name):
        if name in SPARSE and module.startswith("scipy.sparse"):
            import scipy
            import scipy.sparse
            if not hasattr(scipy.sparse, name):
                raise FormatError(f"it holds a {name} of SciPy, which SciPy {scipy.__version__} does not know: update "
                                  "SciPy")
            return getattr(scipy.sparse, name)
        if name in ("ndarray", "dtype") and module == "numpy":
            return getattr(np, name)
        if name == "_frombuffer" and module.endswith("core.numeric"):  # of protocol 5
            return np.zeros(1).__reduce_ex__(5)[0]
        if name in ("_reconstruct", "scalar") and module.endswith("core.multiarray"):
            return (np.zeros(0) if name == "_reconstruct" else np.float64(0)).__reduce__()[0]
        if module == "collections" and name in ("defaultdict", "OrderedDict"):
            return getattr(collections, name)
        if module in ("__builtin__", "builtins") and name in ("list", "set", "bytearray"):
            return {"list": list, "set": set, "bytearray": bytearray}[name]
        if (module, name) == ("_codecs", "encode"):
            import codecs
            return codecs.encode
        raise pickle.UnpicklingError(f"it calls {module}.{name}, which no data set needs")


def planetoid(path):
    """Vertices 0 to len(allx)-1 have their row in allx and ally, vertex tests[i] row i of tx and ty.
    An id between these that is in neither is a vertex with edges, but without features and label."""
    prefix = one_of(path, ".graph", "Planetoid")

    def part(name):
        return parsed(f"{prefix}.{name}", lambda f: Arrays(f, encoding="latin1").load())

    allx, tx = csr(part("allx")), csr(part("tx"))
    ally, ty, training = part("ally"), part("ty"), len(part("y"))
    tests = parsed(prefix + ".test.index", lambda f: np.array([int(line) for line in f if line.strip()], np.int64))
    if not (allx.shape[0] == len(ally) >= training and tx.shape[0] == len(ty) == len(tests) and
            allx.shape[1] == tx.shape[1] and ally.shape[1:] == ty.shape[1:]):
        raise FormatError(f"{prefix}.*: the files do not fit together: allx {allx.shape}, ally "
                          f"{ally.shape}, tx {tx.shape}, ty {ty.shape}, test.index {len(tests)}, y "
                          f"{training}; take all from one data set")
    if len(np.unique(tests)) < len(tests) or tests.min(initial=len(ally)) < len(ally):
        raise FormatError(f"{prefix}.test.index: want ids from {len(ally)} on, each once")
    vertices = int(tests.max(initial=len(ally) - 1)) + 1
    missing = vertices - len(ally) - len(tests)
    if missing > len(ally) + len(tests):  # citeseer lacks 15 of 1,015; each id takes memory
        raise FormatError(f"{prefix}.test.index: the largest id is {vertices - 1}, but only "
                          f"{len(ally) + len(tests)} vertices have features")
    label = np.full(vertices, -1, np.int64)
    for name, rows, ids in ("ally", ally, np.arange(len(ally))), ("ty", ty, tests):
        if not (np.isin(rows, (0, 1)).all() and (rows.sum(1) <= 1).all()):
            raise FormatError(f"{prefix}.{name}: want at most one 1 among zeros in each row")
        label[ids] = np.where(rows.any(1), rows.argmax(1), -1)
    at = np.concatenate([np.arange(len(ally)), tests])
    both = csr(np.zeros((0, allx.shape[1])) if vertices == 0 else _stack(allx, tx))
    place = np.full(vertices, len(at))
    place[at] = np.arange(len(at))
    both.resize(len(at) + 1, allx.shape[1])  # an empty row for the missing
    lists = part("graph")
    edges = np.array([(u, v) for u, row in lists.items() for v in row], np.int64).reshape(-1, 2)
    valid = min(500, len(ally) - training)
    notes = [f"{missing} vertices are not in test.index: they have no features and no label"]
    return Graph(np.ascontiguousarray(edges.T), vertices, both[place], label, undirected=True, more={
        "train_idx": np.arange(training), "valid_idx": np.arange(training, training + valid),
        "test_idx": tests,
    }, origin={
        "name": os.path.basename(prefix).removeprefix("ind."), "classes": ally.shape[1],
        "split": "the rows of x, the 500 ids after them, test.index",
        "notes": notes if missing else [],
    })


def _stack(a, b):
    import scipy.sparse
    return scipy.sparse.vstack([a, b], format="csr")


def saint(path):
    """adj_train.npz is not read, because training samples from the whole graph."""
    import scipy.sparse

    def file(name):
        return os.path.join(path, name)

    adjacency = parsed(file("adj_full.npz"), scipy.sparse.load_npz)
    rows, columns = adjacency.shape
    if rows != columns:
        raise FormatError(f"{file('adj_full.npz')}: shape {adjacency.shape}, want a square matrix")
    edges = adjacency.tocoo()
    graph = Graph(np.stack([edges.row, edges.col]).astype(np.int64), rows)
    if os.path.exists(file("feats.npy")):
        graph.x = np.load(file("feats.npy"), mmap_mode="r")
    if os.path.exists(file("class_map.json")):
        graph.y = parsed(file("class_map.json"), lambda f: _class_map(json.load(f), rows))
        if graph.y.ndim == 1:
            graph.origin["classes"] = int(graph.y.max(initial=-1)) + 1
    if os.path.exists(file("role.json")):
        roles = parsed(file("role.json"), json.load)
        if set(roles) - {"tr", "va", "te"}:
            raise FormatError(f"{file('role.json')}: {', '.join(roles)}; want tr, va and te")
        graph.origin["split"] = "role.json"
        for role, name in ("tr", "train_idx"), ("va", "valid_idx"), ("te", "test_idx"):
            graph.more[name] = np.array(roles.get(role, []), np.int64)
    return graph


def _class_map(labels, vertices):
    """{"vertex": class} or {"vertex": [0, 1, ...]} as an array; a vertex without a class has -1."""
    ids = [int(v) for v in labels]
    if len(set(ids)) < len(ids) or any(not 0 <= v < vertices for v in ids):
        raise ValueError(f"want vertices 0 to {vertices - 1}, each once")
    values = list(labels.values())
    widths = {len(v) if isinstance(v, list) else 0 for v in values}
    if len(widths) > 1:
        raise ValueError("some vertices have one class and others a list, or lists differ in length")
    if widths != {0} and len(ids) < vertices:
        raise ValueError(f"label lists for {len(ids)} of {vertices} vertices; give the others a list "
                         "of zeros")
    given = np.array(values)
    y = np.full((vertices, *given.shape[1:]), -1, given.dtype if given.dtype.kind == "f" else np.int64)
    y[ids] = given
    return y


def gemsec(path):
    """Each edge once; any number of labels a vertex. Classes are the names in byte order."""
    prefix = one_of(path, "_edges.csv", "GEMSEC")
    genres = parsed(prefix + "_genres.json", json.load)
    names = sorted({g for row in genres.values() for g in row}, key=lambda g: g.encode())
    if sorted(map(int, genres)) != list(range(len(genres))) or "" in names:
        raise FormatError(f"{prefix}_genres.json: want vertices 0 to {len(genres) - 1}, each once, and "
                          "labels with names")
    number = {g: i for i, g in enumerate(names)}
    y = np.zeros((len(genres), len(names)), np.uint8)
    for v, row in genres.items():
        y[int(v), [number[g] for g in row]] = 1
    edges = parsed(prefix + "_edges.csv", lambda f: np.loadtxt(
        f, dtype=np.int64, delimiter=",", skiprows=1, ndmin=2))
    if edges.shape[1:] != (2,):
        raise FormatError(f"{prefix}_edges.csv: want two columns")
    origin = {"class_names": names}
    if prefix == path:
        origin["name"] = os.path.basename(prefix)
    return Graph(np.ascontiguousarray(edges.T), len(genres), None, y, undirected=True, origin=origin)


# The inductive task on the six Twitch countries: train on three, validate on one, test on two.
TWITCH = "DE,FR,ES/RU/ENGB,PTBR"


def musae(path, split=""):
    """The graphs of a directory and of those below it, joined: in the order of the split, then by name.
    The six Twitch countries have the split TWITCH unless another one is given.

    XX_edges.csv      from,to: each edge once
    XX_features.json  {"vertex": [column, ...]}: features are 0 or 1
    XX_target.csv     the vertex is new_id, or id without that; the label is mature, ml_target,
                      page_type or target

    Names may begin with musae_; the older collection has directories edges, features and target."""
    import scipy.sparse
    suffix = "_edges.csv"
    found = [path + suffix] if not os.path.isdir(path) else [
        f for below in ("", "*") for f in glob.glob(os.path.join(glob.escape(path), below, "*" + suffix))]
    stems = {os.path.basename(f).removesuffix(suffix).removeprefix("musae_"):
             f.removesuffix(suffix) for f in found if os.path.exists(f)}
    if not stems:
        raise FormatError(f"{path}: no file *{suffix} is there, nor in a directory below")
    order = split.replace("/", ",").split(",")
    twitch = TWITCH.replace("/", ",").split(",")
    if set(stems) == set(twitch) and not set(order) & set(twitch):
        order, split = twitch, split or TWITCH
    names = sorted(stems, key=lambda n: (order.index(n) if n in order else len(order), n))
    edges, labels, rows, columns, parts, first = [], [], [], [], [], 0
    for name in names:
        target = parsed(_beside(stems[name], "target", "csv"), _targets)
        n = len(target)
        lists = parsed(_beside(stems[name], "features", "json"), lambda f: _lists(json.load(
            f, object_pairs_hook=lambda pairs: pairs), n))
        pairs = parsed(stems[name] + suffix, lambda f: _below(np.loadtxt(
            f, dtype=np.int64, delimiter=",", skiprows=1, ndmin=2), n))
        edges.append(pairs.T + first)
        labels += target
        rows += [np.full(len(row), v + first) for v, row in lists]
        columns += [row for _, row in lists]
        parts.append({"name": name, "first": first, "count": n})
        first += n
    rows, columns = (np.concatenate([np.zeros(0, np.int64), *a]) for a in (rows, columns))
    x = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)),
                                (first, int(columns.max(initial=-1)) + 1))
    x.sum_duplicates()
    x.data[:] = 1
    graph = Graph(np.ascontiguousarray(np.concatenate(edges, axis=1)), first, x, undirected=True,
                  origin={"parts": parts if len(parts) > 1 else []})
    classes = sorted(set(labels), key=lambda y: y.encode())
    number = {"False": 0, "True": 1}
    if not set(classes) <= set(number):
        if not all(y.removeprefix("-").isdigit() for y in classes):
            graph.origin["class_names"] = classes
        number = {y: i if "class_names" in graph.origin else int(y) for i, y in enumerate(classes)}
    graph.y = np.array([number[y] for y in labels], np.int64)
    if split == TWITCH and order is twitch:
        graph.origin["split"] = "by graph: " + split
        for key, graphs in zip(("train_idx", "valid_idx", "test_idx"), split.split("/")):
            graph.more[key] = np.concatenate([np.arange(p["first"], p["first"] + p["count"])
                                              for p in parts if p["name"] in graphs.split(",")])
    return graph


def _beside(stem, what, ending):
    """The file that belongs to the edges of a graph, in their directory or in a sibling named so."""
    name = f"{os.path.basename(stem)}_{what}.{ending}"
    for below in ".", os.path.join("..", what):
        file = os.path.normpath(os.path.join(os.path.dirname(stem), below, name))
        if os.path.exists(file):
            return file
    raise FormatError(f"{os.path.dirname(stem)}: no file {name} is there, which belongs to the edges; a "
                      "graph without features and labels is imported by halognn import --format csv")


def _below(ids, n):
    if ids.shape[1:] != (2,) or not ((ids >= 0) & (ids < n)).all():
        raise ValueError(f"want two columns of vertices 0 to {n - 1}")
    return ids


def _targets(f):
    """The label of each vertex, as text. The Twitch files repeat a few vertices, with one label."""
    table = csv.DictReader(f.read().decode().splitlines())
    fields = table.fieldnames or []
    vertex = next((c for c in ("new_id", "id") if c in fields), None)
    label = next((c for c in ("mature", "ml_target", "page_type", "target") if c in fields), None)
    if vertex is None or label is None:
        raise ValueError(f"columns {','.join(fields)}; want new_id or id, and mature, ml_target, "
                         "page_type or target")
    of = {}
    for row in table:
        v = int(row[vertex])
        if of.setdefault(v, row[label]) != row[label]:
            raise ValueError(f"line {table.line_num}: vertex {v} is {row[label]} here and {of[v]} before")
    if sorted(of) != list(range(len(of))):
        raise ValueError(f"want a row for each vertex, 0 to {len(of) - 1}")
    return [of[v] for v in range(len(of))]


def _lists(members, n):
    """[(vertex, columns), ...] of a JSON object, of which each key is a vertex below n, once."""
    lists = [(int(v), np.array(row, np.int64).reshape(-1)) for v, row in members]
    if len({v for v, _ in lists}) < len(lists) or any(not 0 <= v < n for v, _ in lists):
        raise ValueError(f"want vertices 0 to {n - 1}, each once")
    if any((row < 0).any() for _, row in lists):
        raise ValueError("want columns from 0")
    return lists


def mat(path):
    """MATLAB files, of version 7.3 by h5py, by their variables.

    attributed graph   Network, A or adj ... [N, N], Attributes, X or feature ... [N, F], Label, gnd or
                       group ...: VARIABLES, in any case of letters
    Facebook100        A and local_info [N, 7]: one file a school; a directory is joined

    Both store each edge in both directions."""
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(glob.glob(os.path.join(glob.escape(path), "*.mat")))
    files = [parsed(p, _loadmat) for p in paths]
    schools = sum("local_info" in f for f in files)
    if files and schools == len(files):
        return facebook(paths, files)
    if len(files) != 1:
        raise FormatError(f"{path}: {len(files)} .mat files, {schools} of them from Facebook100 (with "
                          "local_info); want one file, or a directory of Facebook100 only")
    f = files[0]
    problem = f.get("Problem")
    if getattr(problem, "dtype", np.dtype(int)).names and problem.size:  # a struct of SuiteSparse
        del f["Problem"]
        f.update({f"Problem.{name}": problem[name].flat[0] for name in problem.dtype.names})
        if "Problem.A" in f and "A" not in f:
            f["A"] = f.pop("Problem.A")
    used = {meaning: _named(f, names) for meaning, names in VARIABLES.items()}
    network = f.get(used["network"])
    if (network is None or getattr(network, "ndim", 0) != 2 or network.shape[0] != network.shape[1] or
            network.dtype.kind not in "biuf"):
        raise FormatError(f"{paths[0]}: no square matrix {', '.join(VARIABLES['network'])}; it holds {_content(f)}; "
                          "halognn.from_scipy(network, x, y) takes variables of scipy.io.loadmat(FILE) of other names")
    entries = weighed_entries(csr(network))
    x, notes = f.get(used["x"]), []
    graph = Graph(np.stack([entries.row, entries.col]).astype(np.int64), network.shape[0],
                  upright(x, network.shape[0]), origin={"notes": notes})
    if graph.x is not x:
        notes.append(f"{used['x']} has a column for each vertex, and is read as rows")
    if np.any(entries.data != 1):
        graph.more["edge_weight"] = np.asarray(entries.data, np.float64)
    graph.left = [f"variable {name}" for name in f if name not in used.values()]
    label = f.get(used["label"])
    if label is not None:
        if hasattr(label, "toarray"):
            label = label.toarray()
        if label.dtype.kind in "OUS":  # cells of words
            graph.y = np.array([str(np.squeeze(word)) for word in label.flat])
            return graph
        label = upright(label, graph.num_nodes)
        if label.shape[0] != graph.num_nodes:
            raise FormatError(f"{paths[0]}: labels {label.shape} for {graph.num_nodes} vertices")
        if label.shape[1] == 1:  # counted from 1, as in MATLAB, or from 0
            label = label.astype(np.float64)[:, 0]
            if np.min(label[label >= 0], initial=np.inf) >= 1:
                label = np.where(label >= 0, label - 1, label)
                last = int(np.max(label, initial=-1)) + 1
                graph.origin["class_names"] = [str(c) for c in range(1, last + 1)]
                notes.append(f"classes 1 to {last} of the source are numbered 0 to {last - 1} here; "
                             "predictions have the source's numbers")
            graph.origin["classes"] = int(np.max(label[label >= 0], initial=-1)) + 1
        graph.y = label
    return graph


# What people call the variables of attributed graphs, in the order in which they are taken.
VARIABLES = {
    "network": ("Network", "A", "adj", "Adjacency", "adj_matrix", "W", "graph", "net", "PvsP"),
    "x": ("Attributes", "X", "feature", "features", "feat", "fea", "feats", "attr", "attrb", "attribute"),
    "label": ("Label", "Class", "gnd", "group", "labels", "y", "gt", "truth", "classes"),
}


def upright(array, vertices):
    """A matrix with a row for each vertex, of one that has a column for each instead."""
    shape = getattr(array, "shape", ())
    return array.T if len(shape) == 2 and shape[0] != vertices and shape[1] == vertices else array


def _named(f, names):
    """The variable of one of these names, written so or in other letters."""
    lower = {}
    for name in f:
        lower.setdefault(name.lower(), name)
    return next((n if n in f else lower[n.lower()] for n in names if n in f or n.lower() in lower), None)


def _loadmat(f):
    import scipy.io
    try:
        return {k: v for k, v in scipy.io.loadmat(f).items() if not k.startswith("__")}
    except NotImplementedError:
        return _loadmat73(f)


def _loadmat73(f):
    """MATLAB 7.3 is HDF5: arrays by columns, a sparse matrix as a group of its CSC arrays."""
    try:
        import h5py
    except ImportError:
        raise FormatError(f"{f.name}: a MATLAB 7.3 file, which h5py reads: pip install h5py, or save it "
                          "with -v7") from None
    import scipy.sparse

    def variable(v):
        if isinstance(v, h5py.Dataset):
            return v[()].T
        ends, empty = v["jc"][()], np.zeros(0, np.int64)
        parts = [v[name][()] if name in v else empty for name in ("data", "ir")]
        shape = int(v.attrs["MATLAB_sparse"]), len(ends) - 1
        return scipy.sparse.csc_matrix((*parts, ends), shape)

    with h5py.File(f, "r") as file:
        return {k: variable(v) for k, v in file.items() if isinstance(v, h5py.Dataset) or "jc" in v}


def _variable(f, *names):
    return next((f[n] for n in names if n in f), None)


def _content(f):
    return ", ".join(f"{name} {getattr(v, 'shape', '')}" for name, v in f.items())


def _edges(network, first=0):
    entries = csr(network).tocoo()
    stored = entries.data != 0
    return np.stack([entries.row[stored], entries.col[stored]]).astype(np.int64) + first


# Facebook100 (Traud, Mucha, Porter, arXiv:1102.2166). The class of a user is the graduation year,
# one of YEARS; others have no label. The columns of local_info are status, gender, major, minor,
# dorm, year and high school; 0 means missing. Codes of majors, minors and dorms have no meaning
# common to schools, so they are hashed, school by school, into so many columns.
YEARS = range(2004, 2010)
HASHED = {2: 80, 3: 64, 4: 96}


def facebook(paths, files):
    """Schools joined, the largest first; features are 0 or 1.

    status 1..6 | gender 1..2 | school, if several | major: (code*schools + school) mod 80 | minor:
    ... mod 64 | dorm: ... mod 96"""
    import scipy.sparse
    order = sorted(range(len(files)), key=lambda i: -files[i]["local_info"].shape[0])
    edges, years, rows, columns, parts, first = [], [], [], [], [], 0
    for school, i in enumerate(order):
        network, info = _variable(files[i], "A", "Network"), files[i]["local_info"]
        n = info.shape[0]
        if network is None or network.shape != (n, n) or info.shape != (n, 7):
            raise FormatError(f"{paths[i]}: {_content(files[i])}; want A [N, N], local_info [N, 7]")
        info = np.asarray(info, np.float64)
        if not ((info >= 0) & (info == np.floor(info)) & (info < 1 << 31)).all():
            raise FormatError(f"{paths[i]}: local_info: want codes from 0")
        info, at = info.astype(np.int64), 0

        def mark(users, column):
            rows.append(np.flatnonzero(users) + first)
            columns.append(np.broadcast_to(column, n)[users])

        for code, most in (0, 6), (1, 2):
            mark((info[:, code] >= 1) & (info[:, code] <= most), at + info[:, code] - 1)
            at += most
        if len(files) > 1:
            mark(np.ones(n, bool), at + school)
            at += len(files)
        for code, size in HASHED.items():
            mark(info[:, code] > 0, at + (info[:, code] * len(files) + school) % size)
            at += size
        year = info[:, 5]
        years.append(np.where(np.isin(year, YEARS), year - YEARS[0], -1))
        edges.append(_edges(network, first))
        parts.append({"name": name_of(paths[i]), "first": first, "count": n})
        first += n
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    x = scipy.sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (first, at))
    return Graph(np.concatenate(edges, axis=1), first, x, np.concatenate(years), origin={
        "classes": len(YEARS), "class_names": [str(y) for y in YEARS],
        "parts": parts,
    })


FORMATS = {"planetoid": planetoid, "saint": saint, "gemsec": gemsec, "musae": musae, "mat": mat}
