"""Runs the program."""

import contextlib
import csv
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np

from .graph import Graph, TypedGraph, from_dgl, from_networkx, from_pyg, from_scipy, numpy_of, split_of
from .run import Run, read_run

Path = Union[str, "os.PathLike[str]"]


class HalognnError(RuntimeError):
    """The program ended with an error; code is its exit code (docs/exit-codes.md)."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def program():
    """The path of the program: $HALOGNN, the one that the wheel carries, or halognn on PATH."""
    carried = os.path.join(os.path.dirname(__file__), "bin", "halognn")
    path = os.environ.get("HALOGNN") or shutil.which(carried) or shutil.which("halognn")
    if not path or not shutil.which(path):
        raise FileNotFoundError(
            f"the program {path or 'halognn'} is not there; build it (make build) and set HALOGNN "
            "to the path of bin/halognn, or put it on PATH")
    return path


# As env.sh sets it: Open MPI's mpirun kills a job that it ends after twice so many seconds, starts more
# ranks than there are cores, as a notebook's machine has few, and works for root, as in a container.
MPI = {
    "OMPI_MCA_odls_base_sigkill_timeout": "6", "PRTE_MCA_odls_base_sigkill_timeout": "6",
    **({} if "SLURM_JOB_ID" in os.environ else {
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}),
    **({} if os.getuid() else dict.fromkeys((
        "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")),
}


def call(arguments, launcher=(), progress=False):
    """Run the program and return its standard output; with progress, pass its other words on.

    Interrupted, it waits until the program has saved its state; again, it ends it at once.
    """
    command = [*launcher, program(), *map(str, arguments)]
    errors = []

    def listen():
        for line in process.stderr:
            errors.append(line.removeprefix("halognn: "))
            if progress:
                sys.stderr.write(line)
        process.wait()

    # A file takes standard output, so that the program never waits for it to be read.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True,
                              env={**MPI, **os.environ}) as process:
            try:
                try:
                    listen()
                except KeyboardInterrupt:
                    # Ctrl-C and a notebook's interrupt go to the process group: the program, or its
                    # launcher, has it already, and would take another signal for a second one.
                    listen()
                    raise KeyboardInterrupt("".join(errors).strip()) from None
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            code = process.returncode
            said = without_launcher("".join(errors).strip())
            said = said.replace("--force replaces it", "overwrite=True replaces it")
            raise HalognnError(said or f"{command[0]} ended with code {code}", code)
        output.seek(0)
        return output.read()


def without_launcher(said):
    """What the program said, without what mpirun adds at the end; its warnings before stay."""
    return re.split(r"\n+(?:-{20,}\n)+(?=Primary job|(?:mpirun|prterun) detected)", said)[0]


@contextlib.contextmanager
def temporary():
    """A directory for a call of the program, whose errors name the files there without it."""
    with tempfile.TemporaryDirectory(prefix="halognn-") as tmp:
        try:
            yield tmp
        except HalognnError as error:
            text = str(error).replace(os.path.join(tmp, ""), "")
            raise HalognnError(text, error.code) from None


def flags(options):
    """{"split_index": 3, "force": True} as --split-index=3 --force; False and None are left out."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words.append(f"{flag}={','.join(map(str, value))}")
        elif value is not None and value is not False:
            words.append(f"{flag}={value}")
    return words


def graph_of(graph: Any) -> "Graph | TypedGraph":
    """A Graph, from one of the libraries by the module of its class."""
    if isinstance(graph, (Graph, TypedGraph)):
        return graph
    module = type(graph).__module__.split(".")[0]
    makers = {"torch_geometric": from_pyg, "dgl": from_dgl, "networkx": from_networkx,
              "scipy": from_scipy}
    if module not in makers:
        cure = CURES.get(module, "")
        raise TypeError(f"a {type(graph).__name__} of {module} is no graph known here; give {cure}"
                        "halognn.Graph(edge_index, num_nodes, x, y), or a graph of "
                        "PyTorch Geometric, DGL, SciPy or NetworkX")
    return makers[module](graph)


# How objects of other modules become graphs that are known here.
CURES = {
    "builtins": "networkx.Graph(object) of a dict of lists or a list of pairs, for a file what reads it "
                "(networkx.read_gml(path), or `halognn import` for tables and arrays), ",
    "igraph": "graph.to_networkx(), ",
    "networkit": "networkit.nxadapter.nk2nx(graph), ",
    "numpy": "scipy.sparse.csr_matrix(array) of an adjacency matrix, ",
    "pandas": "its rows as a table (frame.to_csv(\"edges.csv\", index=False)) to `halognn import --format csv`, or "
              "networkx.from_pandas_edgelist(frame), ",
}


def direction(graph):
    """The flags about the reverses of edges."""
    if isinstance(graph, TypedGraph):
        return ["--reverse"] if graph.reverse else []
    return ["--undirected" if graph.undirected else "--directed"]


@contextlib.contextmanager
def stored(graph):
    """The flags of `halognn import` that read a Graph, whose arrays lie in a temporary directory."""
    with temporary() as tmp:
        arrays = os.path.join(tmp, "graph")
        os.mkdir(arrays)
        for name, array in graph.arrays().items():
            # the program reads rows: not those of a transposed array
            np.save(os.path.join(arrays, name + ".npy"), np.ascontiguousarray(numpy_of(array, name)),
                    allow_pickle=False)
        if graph.origin:
            with open(os.path.join(arrays, "origin.json"), "w", encoding="utf-8") as f:
                json.dump(graph.origin, f)
        yield ["--format", "npz", "--in", arrays, *direction(graph)]


PARTS = ("train", "valid", "test")


def with_split(graph, split):
    """The graph with another split: a dict of lists of rows or of masks, these three in order, or for each vertex 0, 1 or
    2, or the word, of what it is for."""
    if isinstance(graph, TypedGraph):
        raise ValueError("of a graph with types the split is one of the type with labels: its Graph takes it as masks")
    if isinstance(split, (list, tuple)) and len(split) == 3 and all(
            isinstance(part, (set, frozenset)) or np.ndim(part) == 1 for part in split):
        split = dict(zip(PARTS, split))
    elif not isinstance(split, dict):
        split = split_of_codes(split, graph.num_nodes)
    unknown = [name for name in split if not split_of(name)]
    if unknown:
        raise ValueError(f"the split has a list {unknown[0]!r}; want train, valid and test")
    split = {name: part for name, part in split.items() if part is not None}
    if not split:
        raise ValueError("the split has no list; want train, valid and test")
    more = {name: array for name, array in graph.more.items() if not split_of(name)}
    origin = {name: what for name, what in graph.origin.items() if name != "split"}
    return dataclasses.replace(graph, masks=split, more=more, origin=origin)


def split_of_codes(split, num_nodes):
    """Masks of a code or a word for each vertex; -1, NaN and nothing are of no part."""
    want = (f"give a dict of the lists train, valid and test, or of masks; or for each of {num_nodes} vertices 0, 1 or 2, or "
            "train, valid or test, and -1 or nothing for none; shares are text, as \"60/20/20\"")
    codes = numpy_of(list(split) if isinstance(split, (set, frozenset)) else split, "split")
    if isinstance(split, (set, frozenset)) or codes.shape != (num_nodes,):
        raise ValueError(f"split is {codes.shape or type(split).__name__}: {want}")
    if codes.dtype.kind == "b":
        raise ValueError(f"split is an array of bools, which say nothing of two parts: {want}")
    if codes.dtype.kind in "SU":
        words, of = np.unique(codes, return_inverse=True)
        codes = np.array([code_of(str(word), want) for word in words.astype(str)])[of]
    odd = codes[~(np.isnan(codes) | np.isin(codes, (-1, 0, 1, 2)))]
    if odd.size:
        raise ValueError(f"split holds {odd[0]}: {want}")
    return {part: codes == k for k, part in enumerate(PARTS)}


def code_of(word, want):
    """The number of the part that a word names, -1 for none."""
    word = word.strip().lower()
    if word in ("", "nan", "none", "null", "na", "n/a", "<na>", "unused", "-1"):
        return -1
    part = split_of(word.removesuffix("set").rstrip(" _-"))
    if not part and word not in ("0", "1", "2"):
        raise ValueError(f"split holds {word!r}: {want}")
    return PARTS.index(part) if part else int(word)


def write_dataset(directory: Path, graph: Any, undirected: Optional[bool] = None,
                  overwrite: bool = False, **options: Any) -> str:
    """Write a graph as a DATASET directory and return the report of the import. What of the graph is
    left out is a warning.

    graph: a Graph or TypedGraph, or one of PyTorch Geometric, DGL, SciPy (from_scipy takes x and y) or
        NetworkX
    overwrite: replace a dataset that is there
    undirected: add the reverse of every edge that lacks it; None: as the graph says. Of a graph with
        types, reverse=True adds the reverse of every relation
    options: flags of `halognn import`: split="60/20/20", or a dict of the lists train, valid and test, of rows or
        as masks, or an array with 0, 1 or 2 for each vertex, seed=0, split_index=0 or "all", standardize=True,
        feature_type="float16", task="regression", or
        task="links" with split_links="85/5/10" and, of a graph with types, relation="author,writes,paper",
        of one without link_classes or link_numbers, an array with the label of each edge or its name,
        ignore=["edge_type"], name="mine", force=True
    """
    graph = graph_of(graph)
    if undirected is not None:
        if isinstance(graph, TypedGraph):
            raise ValueError("undirected is of graphs without types; reverse=True adds the reverse of "
                             "every relation")
        graph = dataclasses.replace(graph, undirected=undirected)
    if not isinstance(options.get("split"), (str, os.PathLike, type(None))):
        if options.get("task") == "links":
            raise ValueError("split is of vertices; links are split by split_links")
        graph = with_split(graph, options.pop("split"))
    for name in ("link_classes", "link_numbers"):
        if options.get(name) is not None and not isinstance(options[name], str):
            if isinstance(graph, TypedGraph):
                raise ValueError("labels of links are of graphs without types")
            labels = numpy_of(options[name], name)
            graph = dataclasses.replace(graph, more={**graph.more, name: labels})
            options[name] = name
    if not graph.origin.get("name"):  # a dataset keeps the name of its source
        options.setdefault("name", os.path.basename(os.path.abspath(directory)))
    options.setdefault("force", overwrite)
    with stored(graph) as arguments:
        report = call(["import", *arguments, "--out", directory, *flags(options)])
    for name in graph.left:
        warnings.warn(f"{name} is not read", stacklevel=2)
    for note in re.findall(r"^ *note +(.*(?:is not read|is ignored| a time, (?:which|kept)).*)$", report, re.MULTILINE):
        warnings.warn(note, stacklevel=2)
    return report


def partition(directory: Path, dataset: Path, parts: int, method: str = "metis",
              overwrite: bool = False, **options: Any) -> str:
    """Cut a DATASET into a PARTS directory and return the report.

    overwrite: replace parts that are there
    options: flags of `halognn partition`: order, fanouts, batch, seed, force; for a graph without x,
        features="degree" or "ones" makes features of the graph
    """
    options.setdefault("force", overwrite)
    return call(["partition", "--data", dataset, "--parts", parts, "--method", method,
                 "--out", directory, *flags(options)])


def launched(ranks, launcher):
    if launcher is None and ranks > 1:
        mpirun = os.environ.get("HALOGNN_MPIRUN") or "mpirun"
        if not shutil.which(mpirun):
            raise FileNotFoundError(
                f"ranks={ranks} needs {mpirun}, which is not on PATH: install Open MPI or MPICH "
                "(apt-get install openmpi-bin), load its module, or give launcher=")
        launcher = [mpirun, "-np", str(ranks)]
    if launcher is None:
        launcher = []
    return [launcher] if isinstance(launcher, str) else list(launcher)


def kind_of(directory):
    try:
        with open(os.path.join(directory, "meta.json"), encoding="utf-8") as f:
            return "parts" if "parts" in json.load(f) else "dataset"
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def replaced(run):
    """Moves a run directory, and nothing that is none, aside; removes it in the end, or moves it back
    if no other run has begun."""
    if not os.path.isdir(run) or not os.listdir(run):
        yield
        return
    if not os.path.exists(os.path.join(run, "config.yaml")):
        raise FileExistsError(f"{run} holds no run, and is not removed; choose another directory")
    run = os.path.realpath(run)  # a link stays
    aside = tempfile.mkdtemp(prefix=os.path.basename(run) + ".", dir=os.path.dirname(run))
    try:
        os.rename(run, aside)
    except OSError:
        os.rmdir(aside)
        raise
    try:
        yield
    finally:
        if os.path.exists(os.path.join(run, "config.yaml")):
            shutil.rmtree(aside, ignore_errors=True)
        else:
            shutil.rmtree(run, ignore_errors=True)
            os.rename(aside, run)


def train(parts: Path, run: Path, ranks: int = 1, config: Optional[Path] = None,
          launcher: Union[None, str, Sequence[str]] = None, progress: bool = True,
          overwrite: bool = False, resume: bool = False, **settings: Any) -> Run:
    """Train on a PARTS directory into a run directory, and read the run.

    ranks: a divisor of the number of parts; more than one are started by `mpirun -np RANKS`
    launcher: other words before the program, such as ["srun", "-n", "8"]
    config: a run config (YAML); settings win over it
    settings: keys of the config with __ for the point: train__epochs=10, model__hidden=128, or in a
        dict: **{"train.epochs": 10}
    progress: pass the program's progress on to standard error
    overwrite: remove a run that is in the directory, once another has begun; without it, that is an
        error
    resume: go on from the last checkpoint of the run in the directory, if it holds one, with its
        config; settings may be those that may change, as train__epochs
    """
    if overwrite and resume:
        raise ValueError("overwrite removes the run that resume goes on from; give one")
    if kind_of(parts) == "dataset":
        raise ValueError(f"{parts} is a dataset; halognn.partition(directory, dataset, parts) cuts "
                         "it into parts")
    words = {"data.parts": parts} if resume else {"data.parts": parts, "run.dir": run}
    words.update({name.replace("__", "."): value for name, value in settings.items()})
    with temporary() as tmp:
        begun = resume and os.path.exists(os.path.join(run, "config.yaml"))
        if config is None and not begun:
            config = os.path.join(tmp, "config.yaml")
            with open(config, "w", encoding="utf-8") as f:
                f.write("{}\n")
        arguments = ["train", *(["--config", config] if config else []),
                     *(["--resume", run] if resume else [])]
        for name, value in words.items():
            if isinstance(value, bool):
                value = str(value).lower()
            elif isinstance(value, (list, tuple)):
                value = ",".join(map(str, value))
            arguments += ["--set", f"{name}={value}"]
        try:
            with replaced(run) if overwrite else contextlib.nullcontext():
                call(arguments, launched(ranks, launcher), progress)
        except HalognnError as error:
            if "it already holds a run" in str(error):
                text = f"{run} already holds a run; overwrite=True removes it, resume=True goes on"
                raise HalognnError(text, error.code) from None
            raise
    return read_run(run)


def source_arrays(*lists):
    """Ids of the source: numbers where all of all lists are and stay as they are written, else words."""
    with contextlib.suppress(ValueError, OverflowError):
        if all(str(int(id)) == id for ids in lists for id in ids):
            return [np.array(ids, np.int64) for ids in lists]
    return [np.array(ids, np.str_) for ids in lists]


def links_file(pairs, directory):
    """Writes pairs of ids to the file that `infer --links` takes: numbers as .npy, words as a table."""
    pairs = np.asarray(pairs)
    if pairs.dtype.kind not in "UO":
        path = os.path.join(directory, "links.npy")
        np.save(path, pairs.astype(np.int64, casting="same_kind"))
        return path
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"links have the shape {pairs.shape}; give pairs, [n, 2]")
    if "" in pairs:
        raise ValueError("an id of a link is empty")
    path = os.path.join(directory, "links")
    return write_table(path, [("source", "target"), *([str(id) for id in pair] for pair in pairs)])


def write_table(path, rows):
    """Writes rows of words as a table, and returns its path."""
    with open(path, "w", encoding="utf-8", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(rows)
    return path


def infer(run: Union[Run, Path], out: Optional[Path] = None, ranks: int = 1,
          launcher: Union[None, str, Sequence[str]] = None, parts: Optional[Path] = None,
          vertices: Union[None, Path, Iterable[Any]] = None,
          embeddings: Union[None, bool, Path] = None, links: Any = None, **options: Any) -> Any:
    """Predict vertices with the model of a run; rows are in the ids of the DATASET.

    run: a Run or its directory
    out: the .npy file to keep, or a table .csv with the ids of the source; None: a temporary one
    parts: PARTS of another graph with the same features; labels and a split are not needed
    vertices: ids in the source of those to predict, whose order the rows then have; or their file
    embeddings: True, or the .npy file to keep: hidden rows too, what the last layer reads
    links: of the task of links, pairs to score: an array or tensor [n, 2] of ids in the source, or
        their file
    options: flags of `halognn infer`: probabilities=True, logits=True, mode="sampled",
        checkpoint="best" or "last" of a run that has not finished; of links top=10, the best partners
        of each vertex
    Returns the array that out holds, of classes their numbers in the source, or the path of a table;
        with embeddings, that and their array.
    With top and no out: arrays of sources, targets and scores, best first.
    """
    directory = run.directory if isinstance(run, Run) else run
    with temporary() as tmp:
        ranked = options.get("top") and not out
        path = str(out or os.path.join(tmp, "predictions." + ("csv" if ranked else "npy")))
        if links is not None and not isinstance(links, (str, os.PathLike)):
            links = links_file(links, tmp)
        arguments = ["infer", "--run", directory, "--out", path, *flags({**options, "links": links})]
        if parts is not None:
            arguments += ["--parts", parts]
        if vertices is not None:
            if not isinstance(vertices, (str, os.PathLike)):
                listed, vertices = vertices, os.path.join(tmp, "vertices")
                write_table(vertices, [["id"], *([id] for id in listed)])
            arguments += ["--vertices", vertices]
        hidden = os.path.join(tmp, "embeddings.npy") if embeddings is True else embeddings
        if hidden:
            arguments += ["--embeddings", hidden]
        call(arguments, launched(ranks, launcher))
        if ranked:
            with open(path, newline="", encoding="utf-8") as f:
                rows = list(csv.reader(f))[1:]
            source, target, score = zip(*rows) if rows else ((), (), ())
            return (*source_arrays(source, target), np.array(score, np.float32))
        predictions = path if path.lower().endswith(".csv") else np.load(path)
        return (predictions, np.load(hidden)) if hidden else predictions
