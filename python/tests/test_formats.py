"""Readers of published graphs, on small files made here and on the real graphs in HALOGNN_DATA."""

import collections
import gzip
import json
import os
import pickle
import subprocess
import sys
import unittest

import numpy as np

import halognn
from halognn import formats
from test_halognn import Case, library

DATA = os.environ.get("HALOGNN_DATA") or os.path.join(
    os.path.dirname(__file__), "..", "..", "..", "shared", "data")

# The graph of the Go package's import tests: a square 0-1-2-3, an edge 4-5, a self-loop and repeats.
EDGES = np.array([(0, 1), (1, 2), (3, 2), (0, 3), (5, 4), (1, 0), (2, 2), (0, 1)])
LABELS = np.array([0, 1, 2, 0, -1, 1])
X = np.array([[0, 0, 1], [2, 0.5, 0], [0, 1, 0], [1, 0, -3], [0, 0, 0], [0, 0, 4]], np.float32)
SPLIT = {"train": [0, 1], "valid": [2, 3], "test": [5]}


def dump(path, value):
    with open(path, "wb") as f:
        pickle.dump(value, f, protocol=2)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def adjacency():
    import scipy.sparse
    return scipy.sparse.coo_matrix((np.ones(len(EDGES)), EDGES.T), (6, 6)).tocsr()


def planetoid(where):
    import scipy.sparse
    rows, hot = scipy.sparse.csr_matrix(X), np.eye(3, dtype=np.int32)
    for part, value in {
            "x": rows[:2], "allx": rows[:4], "tx": rows[5:], "y": hot[LABELS[:2]],
            "ally": hot[LABELS[:4]], "ty": hot[LABELS[5:]],
            "graph": {v: EDGES[EDGES[:, 0] == v, 1].tolist() for v in range(6)}}.items():
        dump(os.path.join(where, "ind.tiny." + part), value)
    write(os.path.join(where, "ind.tiny.test.index"), "5\n")
    return where


def saint(where):
    import scipy.sparse
    both = adjacency()
    scipy.sparse.save_npz(os.path.join(where, "adj_full.npz"), both + both.T)
    np.save(os.path.join(where, "feats.npy"), X)
    write(os.path.join(where, "class_map.json"), '{"0": 0, "5": 1, "1": 1, "2": 2, "3": 0}')
    write(os.path.join(where, "role.json"), '{"tr": [1, 0], "va": [2, 3], "te": [5]}')
    return where


def mat(where):
    import scipy.io
    import scipy.sparse
    path = os.path.join(where, "tiny.mat")
    scipy.io.savemat(path, {
        "Network": adjacency(), "Attributes": scipy.sparse.csc_matrix(X),
        "Label": np.where(LABELS >= 0, LABELS + 1, -1).reshape(-1, 1).astype(float)},
        do_compression=True)
    return path


def gemsec(where):
    write(os.path.join(where, "XX_edges.csv"), "node_1,node_2\n0,1\n2,1\n")
    write(os.path.join(where, "XX_genres.json"),
          '{"0": ["Rock", "Blues"], "2": ["Rock"], "1": ["Éire"]}')
    return where


def musae(where):
    for name, edges, features, target in (
            ("AA", "from,to\n0,2\n1,2\n", '{"2": [], "0": [1, 1], "1": [0]}',
             "id,mature,new_id\n77,False,1\n78,False,0\n79,True,2\n"),
            ("BB", "from,to\n0,1\n", '{"0": [1], "1": []}',
             "id,mature,new_id\n5,True,0\n6,False,1\n5,True,0\n")):
        os.makedirs(os.path.join(where, name), exist_ok=True)
        stem = os.path.join(where, name, "musae_" + name)
        write(stem + "_edges.csv", edges)
        write(stem + "_features.json", features)
        write(stem + "_target.csv", target)
    return where


def facebook(where):
    import scipy.io
    for name, n, users in (("A1", 2, [[1, 2, 0, 0, 0, 2004, 0], [0, 1, 0, 0, 0, 2010, 0]]),
                           ("B2", 3, [[6, 0, 100, 0, 0, 2009, 0], [7, 0, 0, 0, 0, 0, 0],
                                      [1, 0, 0, 0, 0, 2005, 0]])):
        a = np.zeros((n, n))
        a[0, 1] = a[1, 0] = 1
        scipy.io.savemat(os.path.join(where, name + ".mat"), {
            "A": a, "local_info": np.array(users, float)})
    return where


class TestFormats(Case):
    def setUp(self):
        super().setUp()
        library("scipy.sparse")

    def files(self, make):
        where = self.at("source")
        os.makedirs(where, exist_ok=True)
        return make(where)

    def test_one_graph_in_every_format(self):
        for form, make in (("planetoid", planetoid), ("saint", saint), ("mat", mat)):
            with self.subTest(form):
                self.dir = os.path.join(self.dir, form)
                os.mkdir(self.dir)
                options = {} if form != "mat" else {"split": "40/40/20", "undirected": True}
                report = halognn.write_dataset(
                    self.at("data"), formats.read(form, self.files(make)), **options)
                self.assertEqual(self.array("data", "indptr").tolist(), [0, 2, 4, 6, 8, 9, 10])
                self.assertEqual(self.array("data", "indices").tolist(), [1, 3, 0, 2, 1, 3, 0, 2, 5, 4])
                self.assertEqual(self.array("data", "labels").tolist(), LABELS.tolist())
                self.assertTrue((self.array("data", "features") == X).all())
                if form != "mat":
                    for name, want in SPLIT.items():
                        self.assertEqual(self.array("data", name).tolist(), want)
                self.assertIn(f"({form}): 6 vertices, 10 directed edges", report)
                with open(os.path.join(self.at("data"), "meta.json"), encoding="utf-8") as f:
                    meta = json.load(f)
                self.assertEqual((meta["classes"], meta["provenance"]["source"]), (3, "import " + form))

    def test_pickles_of_ones_own(self):
        import scipy.sparse
        wanted = formats.read("planetoid", self.files(planetoid))
        for protocol, kind in ((5, scipy.sparse.csr_matrix), (4, scipy.sparse.lil_matrix), (4, scipy.sparse.coo_matrix),
                               (2, lambda x: x.toarray())):
            rows = scipy.sparse.csr_matrix(X)
            lists = collections.OrderedDict((v, set(EDGES[EDGES[:, 0] == v, 1].tolist())) for v in range(6))
            for part, value in {"allx": kind(rows[:4]), "tx": kind(rows[5:]), "graph": lists}.items():
                with open(self.at("source/ind.tiny." + part), "wb") as f:
                    pickle.dump(value, f, protocol=protocol)
            write(self.at("source/ind.tiny.test.index"), "5\n\n")
            graph = formats.read("planetoid", self.at("source"))
            self.assertEqual((graph.x != wanted.x).nnz, 0)
            self.assertEqual(len({*zip(*graph.edge_index.tolist())}), len({*zip(*wanted.edge_index.tolist())}))

    def test_musae(self):
        where = self.files(musae)
        out = subprocess.run([sys.executable, "-m", "halognn", "musae", where, self.at("data"),
                              "--split", "BB//AA"], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        self.assertEqual(self.array("data", "indices").tolist(), [1, 0, 4, 4, 2, 3])
        self.assertEqual(self.array("data", "labels").tolist(), [1, 0, 0, 0, 1])
        self.assertEqual(self.array("data", "features").tolist(),
                         [[0, 1], [0, 0], [0, 1], [1, 0], [0, 0]])
        self.assertEqual(self.array("data", "train").tolist(), [0, 1])
        self.assertEqual(self.array("data", "test").tolist(), [2, 3, 4])
        with self.assertRaises(halognn.HalognnError) as caught:
            halognn.write_dataset(self.at("b"), formats.read("musae", where), split="AA/CC/BB")
        self.assertRegex(str(caught.exception), 'no graph "CC".*of AA, BB')

    def test_musae_in_the_directories_of_its_repository(self):
        for of, text in (("edges/lastfm_edges.csv", "node_1,node_2\n0,1\n"),
                         ("features/lastfm_features.json", '{"0": [1], "1": [0]}'),
                         ("target/lastfm_target.csv", "id,target\n0,b\n1,a\n")):
            os.makedirs(os.path.dirname(self.at(of)), exist_ok=True)
            write(self.at(of), text)
        graph = formats.read("musae", self.at("edges/lastfm"))
        self.assertEqual((graph.num_nodes, graph.x.shape, graph.y.tolist()), (2, (2, 2), [1, 0]))
        self.assertEqual(graph.origin["class_names"], ["a", "b"])

    def test_matlab_7_3(self):
        h5py = library("h5py")
        old = formats.read("mat", self.files(mat))
        path, network = self.at("new.mat"), adjacency().tocsc()
        with h5py.File(path, "w", userblock_size=512) as f:
            group = f.create_group("Network")
            group.attrs["MATLAB_sparse"] = np.uint64(6)
            group["data"], group["ir"], group["jc"] = network.data, network.indices, network.indptr
            f["Attributes"] = X.T
            f["Label"] = np.where(LABELS >= 0, LABELS + 1, -1).reshape(1, -1).astype(float)
        with open(path, "r+b") as f:
            f.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
        new = formats.read("mat", path)
        np.testing.assert_array_equal(new.edge_index, old.edge_index)
        np.testing.assert_array_equal(new.x, old.x.toarray())
        np.testing.assert_array_equal(new.y, old.y)

    # Whatever is left of a file, there is one error that names it, or a graph.
    def test_truncated_files(self):
        for form, make, names in (("mat", mat, ["tiny.mat"]),
                                  ("planetoid", planetoid, ["ind.tiny.tx", "ind.tiny.ty", "ind.tiny.graph"]),
                                  ("saint", saint, ["adj_full.npz", "class_map.json"])):
            where = self.files(make)
            for name in names:
                path = os.path.join(self.at("source"), name)
                with open(path, "rb") as f:
                    whole = f.read()
                for length in range(0, len(whole), max(1, len(whole) // 60)):
                    with open(path, "wb") as f:
                        f.write(whole[:length])
                    with self.subTest(name, length=length), self.assertRaisesRegex(
                            formats.FormatError, "tiny|adj_full|class_map"):
                        formats.read(form, where)
                with open(path, "wb") as f:
                    f.write(whole)

    def test_gemsec(self):
        halognn.write_dataset(self.at("data"), formats.read("gemsec", self.files(gemsec)))
        self.assertEqual(self.array("data", "labels").tolist(), [[1, 1, 0], [0, 0, 1], [0, 1, 0]])
        self.assertEqual(self.array("data", "indices").tolist(), [1, 0, 2, 1])

    def test_facebook_schools_the_larger_first(self):
        graph = formats.read("mat", self.files(facebook))
        self.assertEqual(graph.y.tolist(), [5, -1, 1, 0, -1])
        # B2: status 6, major 100*2+0 mod 80; status 7 is none; A1: status 1, gender 2; gender 1.
        self.assertEqual(np.flatnonzero(graph.x.toarray()).tolist(), [
            5, 8, 50, 258, 500, 508, 750, 757, 759, 1006, 1009])
        report = halognn.write_dataset(self.at("data"), graph, split="B2/A1/")
        self.assertEqual(self.array("data", "indices").tolist(), [1, 0, 4, 3])
        self.assertEqual(self.array("data", "train").tolist(), [0, 2])
        self.assertIn("by graph: B2/A1/", report)
        self.assertIn("graph A1: vertices 3 to 4", report)

    def test_label_lists(self):
        where = self.files(saint)
        write(os.path.join(where, "class_map.json"), json.dumps(
            {"0": [1, 0], "5": [0, 1], "1": [1, 1], "2": [0, 0], "3": [0, 1], "4": [1, 0]}))
        self.assertEqual(formats.read("saint", where).y.tolist(), [
            [1, 0], [1, 1], [0, 0], [0, 1], [1, 0], [0, 1]])

    def test_errors_name_the_file(self):
        def spoil(make, name, content, want):
            where = self.files(make)
            path = os.path.join(where if os.path.isdir(where) else self.at("source"), name)
            if callable(content):
                content(path)
            else:
                with open(path, "wb") as f:
                    f.write(content)
            form = make.__name__ if make is not facebook else "mat"
            with self.subTest(want), self.assertRaises(formats.FormatError) as caught:
                formats.read(form, where)
            self.assertIn(name, str(caught.exception))
            self.assertIn(want, str(caught.exception))

        hot = np.eye(3, dtype=np.int32)
        spoil(planetoid, "ind.tiny.tx", b"cposix\nsystem\n(S'true'\ntR.", "posix.system")
        spoil(planetoid, "ind.tiny.allx", b"\x80\x02c", "pickle data was truncated")
        spoil(planetoid, "ind.tiny.", lambda _: dump(self.at("source/ind.tiny.ty"), hot[[1, 1]]),
              "do not fit together")
        spoil(planetoid, "ind.tiny.test.index", b"3\n", "want ids from 4 on")
        spoil(planetoid, "ind.tiny.test.index", b"2000000000\n", "largest id is 2000000000")
        spoil(saint, "class_map.json", b'{"0": 1, "6": 0}', "0 to 5")
        spoil(saint, "class_map.json", b'{"0": 1, "1": [0, 1]}', "others a list")
        spoil(saint, "class_map.json", b'{"0": [0, 1]}', "1 of 6 vertices")
        spoil(saint, "class_map.json", b'{"0": 1', "delimiter")
        spoil(saint, "role.json", b'{"tr": [0], "xx": [1]}', "want tr, va and te")
        spoil(mat, "tiny.mat", b"x" * 200, "")
        spoil(gemsec, "XX_genres.json", b'{"0": ["a"], "2": ["b"]}', "vertices 0 to 1")
        bb = "BB/musae_BB_"
        spoil(musae, bb + "features.json", b'{"0": [1', "Expecting")
        spoil(musae, bb + "features.json", b'{"0": [1], "0": [1]}', "0 to 1, each once")
        spoil(musae, bb + "features.json", b'{"0": [-1]}', "want columns from 0")
        spoil(musae, bb + "features.json", b'{"0": [0], "1": [null]}', "NoneType")
        spoil(musae, bb + "edges.csv", b"from,to\n0,1\n0,2\n", "vertices 0 to 1")
        spoil(musae, bb + "target.csv", b"id,mature,new_id\n5,True,0\n6,False,0\n", "before")
        os.remove(os.path.join(self.files(musae), bb + "features.json"))
        self.assertRaisesRegex(formats.FormatError, "no file musae_BB_features.json", formats.read,
                               "musae", self.at("source"))
        self.assertRaisesRegex(ValueError, "unknown; there are planetoid", formats.read, "ogb", ".")

    def test_command_line(self):
        where = self.files(planetoid)
        out = subprocess.run([sys.executable, "-m", "halognn", "planetoid", where, self.at("data"),
                              "--split", "50/25/25"], capture_output=True, text=True)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        self.assertIn("tiny (planetoid): 6 vertices", out.stdout)
        out = subprocess.run([sys.executable, "-m", "halognn", "planetoid", self.dir, self.at("b")],
                             capture_output=True, text=True)
        self.assertEqual(out.returncode, 3)
        self.assertIn("0 files *.graph", out.stderr)

    # The import of a public graph equals the independently made copy of it in plain arrays.
    def test_real_graphs(self):
        for name, form, path in (("cora", "planetoid", ""), ("citeseer", "planetoid", ""),
                                 ("blogcatalog", "mat", "BlogCatalog.mat"), ("deezer-hu", "gemsec", ""),
                                 ("twitch", "musae", "")):
            where = os.path.join(DATA, name)
            with self.subTest(name):
                if not os.path.isdir(where):
                    self.skipTest(f"real data set {name} is not at {where}: set HALOGNN_DATA")
                halognn.write_dataset(self.at(name), formats.read(form, os.path.join(where, path)))
                self.compare(name, os.path.join(where, "neutral"))

    def compare(self, name, neutral):
        def copy(array):
            return np.load(os.path.join(neutral, array + ".npy"))

        edges = copy("edges")
        order = np.lexsort((np.r_[edges[:, 0], edges[:, 1]], np.r_[edges[:, 1], edges[:, 0]]))
        self.assertTrue((self.array(name, "indices") == np.r_[edges[:, 0], edges[:, 1]][order]).all())
        self.assertTrue((self.array(name, "labels") == copy("labels")).all())
        split = copy("split")
        for code, part in enumerate(("train", "valid", "test")):
            self.assertEqual(sorted(self.array(name, part).tolist()),
                             np.flatnonzero(split == code).tolist())
        if os.path.exists(os.path.join(neutral, "feat_indptr.npy")):
            ends, columns = copy("feat_indptr"), copy("feat_indices")
            x = self.array(name, "features")
            values = copy("feat_values") if os.path.exists(
                os.path.join(neutral, "feat_values.npy")) else 1
            want = np.zeros_like(x)
            want[np.repeat(np.arange(len(x)), np.diff(ends)), columns] = values
            self.assertTrue((x == want).all())

    # The five Facebook networks come in the OGB layout and as the original MATLAB files.
    def test_facebook_equals_ogb(self):
        where = os.path.join(DATA, "fb100-5")
        if not os.path.isdir(where):
            self.skipTest(f"real data set fb100-5 is not at {where}: set HALOGNN_DATA")
        halognn.write_dataset(self.at("mat"), formats.read("mat", os.path.join(where, "mat")))
        x = self.array("mat", "features")
        with gzip.open(os.path.join(where, "ogb", "raw", "node-label.csv.gz"), "rt") as f:
            labels = np.array([float(line) for line in f])
        self.assertEqual(x.shape, (113505, 253))
        self.assertEqual(len(self.array("mat", "indices")), 2 * 3936326)
        self.assertTrue((self.array("mat", "labels") == np.where(np.isnan(labels), -1, labels)).all())


if __name__ == "__main__":
    unittest.main()
