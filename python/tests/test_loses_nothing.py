"""What a graph of another library has is in the dataset, or a warning names it."""

import os
import tempfile
import unittest
import warnings
from unittest import mock

import numpy as np

import halognn

from halognn import formats
from halognn.graph import members, numpy_of, split_of, take_other
from halognn.program import with_split

try:
    import networkx as nx
except ImportError:
    nx = None
try:
    import scipy.io
    import scipy.sparse as sp
except ImportError:
    sp = None


class Data(dict):
    """As of PyTorch Geometric."""

    __module__ = "torch_geometric.data"

    def __getattr__(self, name):
        if name == "num_nodes":
            return 4
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def keys(self):
        return list(dict.keys(self))


class LosesNothing(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.out = os.path.join(self.dir.name, "d")

    def said(self, graph, **options):
        """The report and the warnings."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            report = halognn.write_dataset(self.out, graph, overwrite=True, **options)
        return report, [str(w.message) for w in told]

    def weights(self):
        """The weights as a matrix of source and destination."""
        ends, sources = np.load(f"{self.out}/indptr.npy"), np.load(f"{self.out}/indices.npy")
        path = f"{self.out}/edge_weights.npy"
        weights = np.load(path) if os.path.exists(path) else np.ones(len(sources))
        matrix = np.zeros((len(ends) - 1,) * 2)
        for v in range(len(ends) - 1):
            matrix[sources[ends[v]:ends[v + 1]], v] += weights[ends[v]:ends[v + 1]]
        return matrix

    @unittest.skipUnless(nx, "without networkx")
    def test_networkx_attributes(self):
        g = nx.Graph([(0, 1, {"kind": "a", "weight": 2.0}), (1, 2, {"weight": 3})])
        g.add_edge(2, 2, weight=5)
        for v in g:
            g.nodes[v].update(age=v, club="x")
        _, told = self.said(halognn.from_networkx(g, features=["age"]), keep_loops=True)
        self.assertEqual(sorted(t.split(" is ")[0] for t in told), ["edge attribute kind", "vertex attribute club"])
        self.assertTrue(np.array_equal(self.weights(), [[0, 2, 0], [2, 0, 3], [0, 3, 5]]))
        del g.edges[0, 1]["weight"]
        _, told = self.said(g)
        self.assertTrue(any("1 of 3 edges have no attribute weight" in t for t in told), told)
        g.edges[0, 1]["weight"] = "heavy"
        with self.assertRaisesRegex(ValueError, "0, 1 has the weight 'heavy'"):
            self.said(g)

    @unittest.skipUnless(nx, "without networkx")
    def test_networkx_features_and_labels(self):
        def path(values):
            g = nx.path_graph(len(values))
            for v, value in enumerate(values):
                if value is not None:
                    g.nodes[v]["f"] = value
            return g

        for values, want in (([[1, 2], [1]], "vertex 1: attribute 'f' has 1 numbers"),
                             ([1, "red"], "vertex 1: attribute 'f' is 'red'"), ([1, None], "vertex 1 has no")):
            with self.assertRaisesRegex(ValueError, want):
                halognn.from_networkx(path(values), features=["f"])
        for values, want in ((["a", None, "b"], [0, -1, 1]), ([0, 1, None], [0, 1, -1])):
            self.said(halognn.from_networkx(path(values), label="f"))
            self.assertEqual(np.load(f"{self.out}/labels.npy").tolist(), want)
        with self.assertRaisesRegex(ValueError, "no vertex has an attribute 'f'"):
            halognn.from_networkx(path([None, None]), label="f")

    @unittest.skipUnless(nx, "without networkx")
    def test_ids_of_any_size(self):
        for ids in ([1 << 70, 2, 3], [(1 << 63), 2, 3], [-5, 2, 7]):
            self.said(nx.Graph([(ids[0], ids[1]), (ids[1], ids[2])]))
            name = f"{self.out}/original_name.npy"
            kept = bytes(np.load(name)).decode().split() if os.path.exists(name) else [
                str(i) for i in np.load(f"{self.out}/original_id.npy")]
            self.assertEqual(kept, [str(i) for i in ids])

    @unittest.skipUnless(nx, "without networkx")
    def test_ids_of_numpy_are_numbers(self):
        self.said(nx.Graph([(np.int64(10), np.int64(20)), (np.int64(20), 5)]))
        self.assertEqual(np.load(f"{self.out}/original_id.npy").tolist(), [10, 20, 5])

    def test_types_of_a_homogeneous_graph_of_dgl(self):
        def graph(ndata, edata):
            return type("DGLGraph", (), {
                "__module__": "dgl.heterograph", "is_homogeneous": True, "ndata": ndata, "edata": edata,
                "num_nodes": lambda self: 3, "edges": lambda self, order: (np.array([0, 1]), np.array([1, 2]))})()

        for ndata, edata, named in (({"_TYPE": np.array([0, 1, 1])}, {}, "node_type"),
                                    ({}, {"_TYPE": np.array([0, 1])}, "edge_type"),
                                    ({}, {"etype": np.array([0, 0])}, "edge_type")):
            with self.assertRaisesRegex(halognn.HalognnError, f"{named}.*--ignore {named}"):
                self.said(graph(ndata, edata))
        taken = halognn.from_dgl(graph({"node_type": np.zeros(3), "_TYPE": np.arange(3)}, {
            "rel_type": np.array([2, 3]), "etype": np.array([4, 5]), "_TYPE": np.array([6, 7]), "w": np.array([1., 2.]),
            "weight": np.array([3., 4.])})).more
        self.assertEqual({name: values.tolist() for name, values in taken.items()}, {
            "node_type": [0, 0, 0], "node_type_of_dgl": [0, 1, 2], "edge_type": [4, 5], "edge_rel_type": [2, 3],
            "edge_type_of_dgl": [6, 7], "edge_weight": [3, 4], "edge_w": [1, 2]})
        _, told = self.said(graph({"_TYPE": np.zeros(3), "norm": np.ones(3)}, {"w": np.array([[.5], [.25]])}))
        self.assertEqual(told, ["array norm is not read"])
        self.assertEqual(self.weights()[[0, 1], [1, 2]].tolist(), [.5, .25])

    def test_other_objects_have_a_cure(self):
        for module, cure in (("igraph", "to_networkx"), ("pandas.core.frame", "to_csv"), ("networkit.graph", "nk2nx")):
            with self.assertRaisesRegex(TypeError, cure):
                self.said(type("Graph", (), {"__module__": module})())
        for graph, cure in (({0: [1]}, "networkx.Graph"), (np.eye(2), "csr_matrix"), ("g.gml", "read_gml")):
            with self.assertRaisesRegex(TypeError, cure):
                self.said(graph)

    @unittest.skipUnless(sp, "without SciPy")
    def test_sums_are_larger_than_the_type_of_the_matrix(self):
        entries = (np.full(3, 100, np.int8), ([0, 0, 1], [1, 1, 0]))
        self.said(sp.coo_matrix(entries, (2, 2)))
        self.assertEqual(self.weights().tolist(), [[0, 200], [100, 0]])

    @unittest.skipUnless(sp, "without SciPy")
    def test_matrices_are_the_same_however_they_are_stored(self):
        rows, columns = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0])
        for values in (np.full(4, .25), np.array([1., 0, 1, 1]), np.ones(4), np.array([1, 2, 3, 4])):
            coo = sp.coo_matrix((np.r_[values, values[:1]], (np.r_[rows, 0], np.r_[columns, 1])), (4, 4))
            for matrix in (coo, coo.tocsr(), coo.tocsc(), coo.tolil()):
                self.said(matrix)
                self.assertTrue(np.allclose(self.weights(), coo.toarray()), (values, matrix))

    def test_pyg(self):
        graph = Data(edge_index=np.array([[0, 1, 2], [1, 2, 3]]), x=np.eye(4, dtype=np.float32),
                     y=np.array([0, 1, 0, 1]), edge_weight=[.1, .2, .3], names=[["a"], ["b", "c"]], note="mine",
                     split_idx={"train": np.array([0, 1]), "test": [2, 3]})
        report, told = self.said(graph)
        self.assertEqual(sorted(told), ["names is not read", "note is not read"])
        self.assertIn("2 train, 0 valid, 2 test: split_idx", report)
        self.assertTrue(np.allclose(np.load(f"{self.out}/edge_weights.npy"), [.1, .2, .3]))

    def test_pyg_split_of_types(self):
        graph = Data(edge_index=np.array([[0], [1]]), x=np.eye(4, dtype=np.float32),
                     splits={"train": {"paper": np.array([0])}, "test": {"paper": np.array([1])}})
        _, told = self.said(graph)
        self.assertEqual(told, ["splits is not read"])

    def test_masked_arrays(self):
        y = np.ma.array([0, 1, 0], mask=[False, False, True])
        graph = halognn.Graph(np.array([[0, 1], [1, 2]]), 3, np.ones((3, 1)), y)
        for y in (y, np.ma.array(["a", "b", "a"], mask=y.mask), np.ma.array([False, True, False], mask=y.mask)):
            graph.y = y
            self.said(graph)
            self.assertEqual(np.load(f"{self.out}/labels.npy").tolist(), [0, 1, -1])
        for kind in bool, int:
            graph.masks = {"train_mask": np.ma.array([1, 1, 0], kind, mask=y.mask), "test_mask": np.ma.array(
                [0, 0, 1], kind, mask=[True, False, False])}
            graph.y = np.array([0, 1, 0])
            self.said(graph)
            self.assertEqual(self.split(), [[0, 1], [], [2]])
        with self.assertRaisesRegex(halognn.HalognnError, "NaN"):
            graph.x = np.ma.array(np.ones((3, 1)), mask=[[0], [1], [0]])
            self.said(graph)

    def split(self):
        return [np.load(f"{self.out}/{part}.npy").tolist() for part in ("train", "valid", "test")]

    def test_times_that_are_read(self):
        graph = halognn.Graph(np.array([[0, 1], [1, 2]]), 3, more={"edge_weight": np.array([1.6e9, 1.7e9])})
        self.assertRegex(self.said(graph)[1][0], "edge_weight is read as weight, and seems to be a time")

    def test_splits(self):
        """A split of any spelling, as lists of vertices or as masks."""
        lists = [0, 1], [2], [3]
        marks = [np.isin(np.arange(4), rows) for rows in lists]
        graph = halognn.Graph(np.array([[0, 1, 2], [1, 2, 3]]), 4, np.ones((4, 1)), np.array([0, 1, 0, 1]))
        for names in (("train", "val", "test"), ("Training", "validation", "testing"), ("train_idx", "dev_index", "test_ids"),
                      ("mask_train", "mask_valid", "mask_test")):
            for parts in (lists, marks, [m.astype(int) for m in marks], [set(rows) for rows in lists]):
                if names[0] == "mask_train" and len(parts[0]) < 4:
                    continue
                split = dict(zip(names, parts))
                more = {}
                take_other(more, [], "splits", split)
                for arrays in (halognn.Graph(graph.edge_index, 4, masks=split).arrays(), more,
                               with_split(graph, split).arrays()):
                    rows = {split_of(key): members(key, arrays[key]).ravel().tolist() for key in arrays if split_of(key)}
                    self.assertEqual(rows, dict(zip(("train", "valid", "test"), lists)), split)
        graph.masks = split
        self.assertEqual(self.said(graph)[1], [])
        self.assertEqual(self.split(), list(lists))
        self.said(graph, split=lists)
        self.assertEqual(self.split(), list(lists))
        for split in (np.array([0, 0, 1, 2]), ["train", "train", "val", "test"]):
            self.said(graph, split=split)
            self.assertEqual(self.split(), list(lists))
        with self.assertRaisesRegex(ValueError, "split_links"):
            self.said(graph, split={"train": [0]}, task="links", split_links="50/25/25")
        with self.assertRaisesRegex(ValueError, "splits: train is no list of vertices"):
            take_other({}, [], "splits", {"train": ["a"], "test": [0]})
        more = {}
        take_other(more, [], "split_idx", {"train": [0, 1], "valid": None, "test": [3]})
        take_other(more, [], "test_ids", [70, 80])
        self.assertEqual(sorted(more), ["test_ids", "test_idx", "train_idx"])
        for split in ([0, 0, np.nan, 2], ["Train", "training set", "-1", "test"], np.array([0, 0, -1, 2], np.int8)):
            masks = with_split(graph, split).masks
            self.assertEqual([np.flatnonzero(mask).tolist() for mask in masks.values()], [[0, 1], [], [3]])
        for split, want in (({"train": [0], "hold": [1]}, "a list 'hold'"), ([[0], [1]], r"split is \(2, 1\): give a dict"),
                            (np.array([0, 1]), "each of 4 vertices"), ({"train": ["a"]}, "train is no list of vertices"),
                            (np.array([True, True, False, False]), "an array of bools"), (0.6, "split is float"),
                            ((0.6, 0.2, 0.2), "shares are text"), ({0, 1, 2, 3}, "give a dict"), ([0, 1, 2, 3], "split holds 3"),
                            ([0.5, 0, 1, 2], "split holds 0.5"), (["train", "tset", "test", "test"], "split holds 'tset'"),
                            (np.eye(4, 3), "give a dict"), ({}, "no list"), ({"train": {0, "a"}}, "train is no list")):
            with self.assertRaisesRegex(ValueError, want):
                self.said(graph, split=split)
        graph.masks = {"train_mask": marks[0], "train_idx": [1, 0], "test": [3]}
        self.said(graph)
        self.assertEqual(self.split(), [[0, 1], [], [3]])
        graph.masks["train_idx"] = [2]
        with self.assertRaisesRegex(ValueError, "train_idx and train_mask are two lists"):
            self.said(graph)

    @unittest.skipUnless(sp, "without SciPy")
    def test_mat_by_columns(self):
        """Matrices with a column for each vertex are read as those with a row."""
        network, x = sp.csc_matrix(np.roll(np.eye(5), 1, 1)), np.arange(10.0).reshape(5, 2)
        path = os.path.join(self.dir.name, "m.mat")
        for variables in ({"W": network, "fea": x, "gnd": [[1], [2], [1], [2], [2]]},
                          {"A": network, "Fea": sp.csc_matrix(x.T), "GND": [[1, 2, 1, 2, 2]]}):
            scipy.io.savemat(path, variables)
            report, _ = self.said(formats.read("mat", path))
            self.assertEqual("Fea has a column for each vertex" in report, "Fea" in variables)
            self.assertEqual(np.load(f"{self.out}/labels.npy").tolist(), [0, 1, 0, 1, 1])
            self.assertEqual(np.load(f"{self.out}/features.npy").tolist(), x.tolist())

    def test_no_raw_error_of_numpy(self):
        for array, want in (([[1, 2], [3]], "x has rows of different lengths"), ([{}, {}], "x holds a dict"),
                            (np.ones(2, complex), "x is an array of complex128")):
            with self.assertRaisesRegex(ValueError, want):
                numpy_of(array, "x")

    @unittest.skipUnless(sp, "without SciPy")
    def test_names_of_mat(self):
        network = sp.csc_matrix(np.ones((4, 4)) - np.eye(4))
        path = os.path.join(self.dir.name, "m.mat")
        for variables, left in (({"network": network, "group": sp.csc_matrix(np.eye(4))}, []),
                                ({"adj": network * 2, "feature": np.ones((4, 2)), "label": [[1], [2], [1], [2]]}, []),
                                ({"A": network, "X": np.ones((4, 2)), "gnd": [1, 2, 1, 2], "pos": np.ones(4)},
                                 ["variable pos"]),
                                ({"Problem": {"A": network, "name": "a"}, "y": [1, 2, 1, 2]},
                                 ["variable Problem.name"]),
                                ({"Problem": {"A": np.eye(4), "name": "a"}, "A": network, "y": [1, 2, 1, 2]},
                                 ["variable Problem.A", "variable Problem.name"]),
                                ({"Problem": {"name": "a"}, "A": network, "y": [1, 2, 1, 2]}, ["variable Problem.name"]),
                                ({"Problem": np.zeros(0, [("A", "O")]), "A": network, "y": [1, 2, 1, 2]},
                                 ["variable Problem"]),
                                ({"net": network, "classes": [0, 1, 0, 1]}, [])):
            scipy.io.savemat(path, variables)
            graph = formats.read("mat", path)
            self.assertIsNotNone(graph.y, list(variables))
            self.assertEqual(graph.left, left)
            self.assertEqual("edge_weight" in graph.more, "adj" in variables)

    @unittest.skipUnless(sp, "without SciPy")
    def test_other_names_of_mat(self):
        path = os.path.join(self.dir.name, "m.mat")
        for variables in {"friendship": np.eye(3)}, {"Problem": {"b": np.ones(3)}}:
            scipy.io.savemat(path, variables)
            with self.assertRaisesRegex(formats.FormatError, "it holds .*halognn.from_scipy"):
                formats.read("mat", path)

    @unittest.skipUnless(sp, "without SciPy")
    def test_pickles_of_a_newer_scipy(self):
        path = os.path.join(self.dir.name, "p")
        with open(path, "wb") as f:
            f.write(b"cscipy.sparse\ncoo_array\n.")
        formats.parsed(path, lambda f: formats.Arrays(f).load())
        with mock.patch.dict(vars(sp)):
            del sp.coo_array
            with self.assertRaisesRegex(formats.FormatError, "p: it holds a coo_array.*: update SciPy"):
                formats.parsed(path, lambda f: formats.Arrays(f).load())

    def test_links_of_names(self):
        from halognn.program import links_file
        with open(links_file([["Ann Lee", 'Bob "B", Ray']], self.dir.name), encoding="utf-8") as f:
            self.assertEqual(f.read(), 'source,target\nAnn Lee,"Bob ""B"", Ray"\n')


if __name__ == "__main__":
    unittest.main()
