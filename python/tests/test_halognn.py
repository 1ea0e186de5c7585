"""Tests of the package. They need the program (HALOGNN=bin/halognn) and NumPy; a library that is
not installed is the reason of a skip."""

import importlib
import os
import shutil
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from xml.dom import minidom

import numpy as np

import halognn


def library(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation fails in many ways
        raise unittest.SkipTest(f"{name} cannot be imported: {error}") from None


def random_graph(seed=1, n=300, edges=1500, width=6, classes=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.normal(size=(n, width)).astype(np.float32) + np.eye(classes, width, dtype=np.float32)[y]
    return rng.integers(0, n, (2, edges)), x, y


def edges_of(dataset):
    """The edges of a DATASET as a set of pairs."""
    indptr, indices = (
        np.load(os.path.join(dataset, f"{name}.npy")) for name in ("indptr", "indices"))
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return set(zip(indices.tolist(), targets.tolist()))


def pairs(edge_index):
    """The edges of [2, E] as import keeps them: without loops."""
    return {(u, v) for u, v in np.asarray(edge_index).T.tolist() if u != v}


class Case(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.dir = tmp.name

    def at(self, name):
        return os.path.join(self.dir, name)

    def array(self, dataset, name):
        return np.load(os.path.join(self.at(dataset), f"{name}.npy"))


class TestDatasets(Case):
    def test_graph_is_written_as_it_is(self):
        edge_index, x, y = random_graph()
        parts = ("train", "val", "test")
        masks = {f"{part}_mask": np.arange(300) % 3 == i for i, part in enumerate(parts)}
        report = halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y, masks))
        self.assertIn("300 vertices", report)
        self.assertEqual(edges_of(self.at("d")), pairs(edge_index))
        np.testing.assert_array_equal(self.array("d", "features"), x)
        np.testing.assert_array_equal(self.array("d", "labels"), y)
        np.testing.assert_array_equal(self.array("d", "valid"), np.arange(1, 300, 3))
        np.testing.assert_array_equal(halognn.source_ids(self.at("d")), np.arange(300))

    def test_undirected_and_words(self):
        graph = halognn.Graph(np.array([[0, 1], [1, 2]]), 4, y=np.array(["b", "a", "b", "b"]),
                              ids=np.array(["zoe", "bob", "al", "eve é"]))
        halognn.write_dataset(self.at("d"), graph, undirected=True)
        self.assertEqual(edges_of(self.at("d")), {(0, 1), (1, 0), (1, 2), (2, 1)})
        self.assertEqual(self.array("d", "labels").tolist(), [1, 0, 1, 1])
        self.assertEqual(halognn.source_ids(self.at("d")).tolist(), ["zoe", "bob", "al", "eve é"])

    def test_isolated_vertices_stay_without_features(self):
        halognn.write_dataset(self.at("d"), halognn.Graph(np.array([[0], [1]]), 5))
        self.assertEqual(len(self.array("d", "indptr")), 6)

    def test_refusals_are_those_of_the_import(self):
        edges = np.array([[0, 1], [1, 2]])
        graph = halognn.Graph(edges, 3, y=np.array([0.5, 1.5, 2]))
        with self.assertRaisesRegex(halognn.HalognnError, "regression") as caught:
            halognn.write_dataset(self.at("d"), graph)
        self.assertEqual(caught.exception.code, 3)
        graph = halognn.Graph(edges, 3, more={"edge_type": np.array([0, 1])})
        with self.assertRaisesRegex(halognn.HalognnError, "give each type arrays or a table of its own"):
            halognn.write_dataset(self.at("d"), graph)
        with self.assertWarnsRegex(UserWarning, "array edge_type is not read"):
            report = halognn.write_dataset(self.at("d"), graph, ignore=["edge_type"])
        self.assertIn("array edge_type is not read", report)
        with self.assertRaisesRegex(halognn.HalognnError, "exists.*; overwrite=True replaces it"):
            halognn.write_dataset(self.at("d"), halognn.Graph(edges, 3))
        halognn.write_dataset(self.at("d"), halognn.Graph(edges, 3), overwrite=True)
        with self.assertRaisesRegex(TypeError, "a dict of builtins"):
            halognn.write_dataset(self.at("e"), {})

    def test_equal_data_have_equal_identities(self):
        edge_index, x, y = random_graph()
        text = []
        for _ in range(2):
            halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y), force=True)
            with open(os.path.join(self.at("d"), "meta.json"), encoding="utf-8") as f:
                text.append(f.read())
        self.assertEqual(*text)

    def test_errors_name_what_the_caller_gave(self):
        graph = halognn.Graph(np.array([[0, 1], [1, 2]]), 3, np.zeros(3, np.float32)[None, None])
        with self.assertRaisesRegex(halognn.HalognnError, "^graph: x has shape") as caught:
            halognn.write_dataset(self.at("d"), graph)
        self.assertNotIn(tempfile.gettempdir(), str(caught.exception))

    def test_all_splits_and_arrays_by_columns(self):
        edge_index, x, y = random_graph()
        split = np.random.default_rng(1).integers(0, 3, (300, 2))
        masks = {name: split == k for k, name in enumerate(["train_mask", "val_mask", "test_mask"])}
        graph = halognn.Graph(edge_index, 300, np.asfortranarray(x), y, masks)
        report = halognn.write_dataset(self.at("d"), graph, split_index="all")
        self.assertIn("the first of 2; data.split chooses", report)
        np.testing.assert_array_equal(np.load(self.at("d") + "/features.npy"), x)
        halognn.partition(self.at("p"), self.at("d"), 1, method="ldg")
        for k in range(2):
            halognn.train(self.at("p"), self.at(f"r{k}"), progress=False, **{
                "data.split": k, "train.epochs": 1, "model.layers": 1, "sample.fanouts": [5]})
            with open(self.at(f"r{k}") + "/config.yaml", encoding="utf-8") as f:
                self.assertRegex(f.read(), rf"\n  split: +{k}\n")
        with self.assertRaisesRegex(halognn.HalognnError, "data.split is 2.*only splits 0 to 1"):
            halognn.train(self.at("p"), self.at("r2"), progress=False, **{"data.split": 2})

    def test_an_error_under_mpirun_is_that_of_the_program(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not on PATH")
        with self.assertRaisesRegex(halognn.HalognnError, "holds no parts") as caught:
            halognn.train(self.at("nowhere"), self.at("r"), ranks=2, progress=False)
        self.assertNotIn("mpirun", str(caught.exception))

    def test_the_program_is_missing(self):
        before = os.environ.get("HALOGNN")
        os.environ["HALOGNN"] = self.at("nowhere")
        try:
            with self.assertRaisesRegex(FileNotFoundError, "set HALOGNN"):
                halognn.write_dataset(self.at("d"), halognn.Graph(np.array([[0], [1]]), 2))
        finally:
            os.environ.pop("HALOGNN") if before is None else os.environ.update(HALOGNN=before)


class TestRuns(Case):
    def trained(self, **settings):
        edge_index, x, y = random_graph()
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y), undirected=True)
        halognn.partition(self.at("p"), self.at("d"), 2, method="ldg")
        settings = {"train.epochs": 2, "sample.batch": 32, "sample.fanouts": [5, 5],
                    "model.layers": 2, **settings}
        return halognn.train(self.at("p"), self.at("r"), progress=False, **settings)

    def test_train_read_and_infer(self):
        run = self.trained(model__hidden=16)
        self.assertEqual(run.model["hidden"], "16")
        self.assertEqual(run.weights["convs.0.lin_l.weight"].shape, (16, 6))
        self.assertEqual(run.column("loss", "step").dtype, np.float64)
        classes = halognn.infer(run)
        logits = halognn.infer(run.directory, self.at("l.npy"), logits=True)
        self.assertEqual(logits.shape, (300, 4))
        np.testing.assert_array_equal(classes, logits.argmax(1))
        chosen, hidden = halognn.infer(run, vertices=[7, 3], embeddings=True, probabilities=True)
        self.assertEqual(hidden.shape, (2, 16))
        np.testing.assert_array_equal(chosen.argmax(1), classes[[7, 3]])
        np.testing.assert_allclose(chosen.sum(1), 1, rtol=1e-5)
        table = halognn.infer(run, self.at("t.csv"))
        with open(table, encoding="utf-8") as f:
            self.assertEqual(f.readlines()[:2], ["id,class\n", f"0,{classes[0]}\n"])
        again = halognn.read_run(self.at("r"))
        self.assertEqual(again.summary, run.summary)
        with self.assertRaisesRegex(KeyError, "kinds are"):
            run.column("nothing")
        self.assertRegex(repr(run), r"^Run\('.*/r': model sage, valid accuracy 0\.\d{4}, .*ranks 1\)$")
        page = run._repr_html_()
        self.assertEqual(page.count("<polyline"), 2)
        minidom.parseString(page)

    def test_train_again(self):
        run = self.trained()
        settings = {"train.epochs": 2, "sample.batch": 32, "sample.fanouts": [5, 5], "model.layers": 2}
        with self.assertRaisesRegex(halognn.HalognnError, "overwrite=True removes it, resume=True"):
            halognn.train(self.at("p"), self.at("r"), progress=False, **settings)
        for wrong in {"train.epochs": -1}, {"model.kind": "typo"}:  # the run is not lost
            with self.assertRaises(halognn.HalognnError):
                halognn.train(self.at("p"), self.at("r"), progress=False, overwrite=True, **wrong)
            self.assertEqual(halognn.read_run(self.at("r")).summary, run.summary)
        self.assertEqual([name for name in os.listdir(self.at(".")) if name.startswith("r.")], [])
        again = halognn.train(self.at("p"), self.at("r"), progress=False, overwrite=True, **settings)
        self.assertEqual(again.summary["loss_digest"], run.summary["loss_digest"])
        more = halognn.train(self.at("p"), self.at("r"), progress=False, resume=True, train__epochs=3)
        self.assertEqual(more.column("loss").tolist()[:2], run.column("loss").tolist())
        self.assertEqual(len(more.column("loss")), 3)
        fresh = halognn.train(self.at("p"), self.at("new"), progress=False, resume=True, **settings)
        self.assertEqual(fresh.summary["loss_digest"], run.summary["loss_digest"])
        with self.assertRaisesRegex(FileExistsError, "holds no run"):
            halognn.train(self.at("p"), self.at("d"), overwrite=True)
        self.assertTrue(os.path.exists(self.at("d/meta.json")))
        with self.assertRaisesRegex(ValueError, "give one"):
            halognn.train(self.at("p"), self.at("r"), overwrite=True, resume=True)

    def test_mpirun_is_missing(self):
        self.trained()
        before = os.environ.get("HALOGNN_MPIRUN")
        os.environ["HALOGNN_MPIRUN"] = self.at("nowhere")
        try:
            with self.assertRaisesRegex(FileNotFoundError, "ranks=2 needs .*which is not on PATH"):
                halognn.train(self.at("p"), self.at("s"), ranks=2)
        finally:
            os.environ.pop("HALOGNN_MPIRUN") if before is None else os.environ.update(
                HALOGNN_MPIRUN=before)

    def test_metrics_without_a_value(self):
        edge_index, x, y = random_graph()
        masks = {"train_mask": np.ones(300, bool)}
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y, masks))
        halognn.partition(self.at("p"), self.at("d"), 1, method="ldg")
        settings = {"train__epochs": 2, "sample__fanouts": [5, 5, 5]}
        run = halognn.train(self.at("p"), self.at("r"), progress=False, **settings)
        self.assertIsNone(run.summary["test_metric"])
        self.assertEqual(run.summary["no_value"]["test_metric"], "no vertices")
        np.testing.assert_array_equal(run.column("valid_metric", "eval"), [np.nan, np.nan])
        with self.assertRaisesRegex(halognn.HalognnError, "train.patience=0"):
            halognn.train(self.at("p"), self.at("s"), progress=False, train__patience=1, **settings)

    def test_graph_without_features(self):
        edge_index, _, y = random_graph()
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, None, y))
        settings = {"train__epochs": 2, "sample__fanouts": [5, 5, 5], "progress": False}
        halognn.partition(self.at("p"), self.at("d"), 1, method="ldg")
        with self.assertRaisesRegex(halognn.HalognnError, "--features degree"):
            halognn.train(self.at("p"), self.at("r"), **settings)
        halognn.partition(self.at("q"), self.at("d"), 1, method="ldg", features="degree")
        run = halognn.train(self.at("q"), self.at("r"), **settings)
        self.assertEqual(run.model["in"], "16")
        degree = np.diff(self.array("d", "indptr"))
        rows = self.array("q", "part-0000/features")
        np.testing.assert_allclose(rows[:, 0], np.log1p(degree[self.array("q", "original_id")]),
                                   rtol=1e-6)
        self.assertEqual(halognn.infer(run).shape, (300,))

    def test_links(self):
        edge_index, x, y = random_graph()
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y), undirected=True,
                              task="links", split_links="80/10/10")
        halognn.partition(self.at("p"), self.at("d"), 2, method="ldg")
        run = halognn.train(self.at("p"), self.at("r"), progress=False, train__epochs=1,
                            sample__fanouts=[5, 5], model__layers=2, links__width=8)
        self.assertEqual(set(run.summary["test_links"]) & {"mrr", "hits_10", "auc"},
                         {"mrr", "hits_10", "auc"})
        z = halognn.infer(run, logits=True)
        self.assertEqual(z.shape, (300, 8))
        source, target, score = halognn.infer(run, vertices=[5, 2], top=3)
        np.testing.assert_array_equal(source, [5, 5, 5, 2, 2, 2])
        np.testing.assert_allclose((z[source] * z[target]).sum(1), score, rtol=1e-5)
        self.assertTrue((np.diff(score.reshape(2, 3)) <= 0).all())
        known = set(map(tuple, np.concatenate([edge_index.T, edge_index.T[:, ::-1]])))
        self.assertFalse(known & set(zip(source, target)))
        pairs = np.stack([source, target], 1)
        np.testing.assert_allclose(halognn.infer(run, links=pairs), score, rtol=1e-6)
        with self.assertRaisesRegex(halognn.HalognnError, "a vertex has only 299 possible partners"):
            halognn.infer(run, top=300)

    def test_labels_of_links(self):
        edge_index, _, y = random_graph()
        a, b = y[edge_index]
        graph = halognn.Graph(edge_index, 300, np.eye(y.max() + 1, dtype=np.float32)[y])
        labels = {"link_classes": (a + b) % 3, "link_numbers": np.stack([a + b, a * b], 1) / 2}
        for name, label in labels.items():
            halognn.write_dataset(self.at("d"), graph, undirected=True, task="links", overwrite=True,
                                  **{name: label})
            halognn.partition(self.at("p"), self.at("d"), 2, method="ldg", overwrite=True)
            run = halognn.train(self.at("p"), self.at("r"), progress=False, overwrite=True, train__epochs=20,
                                sample__fanouts=[5], model__layers=1, sample__batch=32)
            self.assertNotIn("test_links", run.summary)
            z = halognn.infer(run, links=edge_index.T)
            if name == "link_classes":
                self.assertGreater((z == label).mean(), run.summary["majority_accuracy"] + 0.2)
            else:
                self.assertEqual(z.shape, label.shape)
                self.assertGreater(run.summary["test_numbers"]["r2"], 0.5)
            with self.assertRaisesRegex(halognn.HalognnError, "--top ranks partners, which a model of"):
                halognn.infer(run, top=3)

    def test_links_of_a_relation(self):
        draw = np.random.default_rng(3)
        nodes = {kind: halognn.Graph(np.zeros((2, 0), np.int64), n, draw.normal(size=(n, 4)))
                 for kind, n in (("author", 40), ("paper", 60))}
        pairs = np.stack([draw.integers(0, 40, 300), draw.integers(0, 60, 300)])
        graph = halognn.TypedGraph(nodes, {("author", "writes", "paper"): pairs}, reverse=True)
        halognn.write_dataset(self.at("d"), graph, task="links", relation="writes")
        halognn.partition(self.at("p"), self.at("d"), 2, method="ldg")
        run = halognn.train(self.at("p"), self.at("r"), progress=False, train__epochs=1,
                            sample__fanouts=[5, 5], model__layers=2)
        source, target, score = halognn.infer(run, vertices=[7, 3], top=2)
        self.assertEqual(source.tolist(), ["author/7"] * 2 + ["author/3"] * 2)
        of = np.array([[int(id.split("/")[1]) for id in ids] for ids in (source, target)])
        self.assertFalse(set(map(tuple, pairs.T)) & set(map(tuple, of.T)))
        np.testing.assert_allclose(halognn.infer(run, links=of.T), score, rtol=1e-6)
        self.assertEqual(halognn.infer(run, logits=True).shape[0], 100)
        with self.assertRaisesRegex(halognn.HalognnError, "a vertex has only 60 possible partners"):
            halognn.infer(run, top=61)

    def test_infer_another_graph(self):
        run = self.trained()
        edge_index, x, _ = random_graph()
        halognn.write_dataset(self.at("new"), halognn.Graph(edge_index, 300, x))
        halognn.partition(self.at("new-2"), self.at("new"), 2, method="ldg")
        self.assertEqual(halognn.infer(run, parts=self.at("new-2")).shape, (300,))

    def test_errors_say_what_to_do(self):
        with self.assertRaisesRegex(FileNotFoundError, "has not finished"):
            halognn.read_run(self.dir)
        halognn.write_dataset(self.at("d"), halognn.Graph(np.array([[0], [1]]), 2))
        with self.assertRaisesRegex(ValueError, "halognn.partition"):
            halognn.train(self.at("d"), self.at("r"))
        with self.assertRaisesRegex(halognn.HalognnError, "make them with"):
            halognn.train(self.at("nothing"), self.at("r"), progress=False)

    def test_logits_are_those_of_pytorch_geometric(self):
        torch, pyg = library("torch"), library("torch_geometric.nn")
        run = self.trained()
        sizes = [int(run.model[key]) for key in ("in", "hidden", "layers", "out")]
        model = pyg.GraphSAGE(*sizes)
        model.load_state_dict({name: torch.from_numpy(w) for name, w in run.weights.items()})
        model.eval()
        edge_index = np.array(sorted(edges_of(self.at("d")))).T
        with torch.no_grad():
            x = torch.from_numpy(self.array("d", "features"))
            want = model(x, torch.from_numpy(edge_index))
        np.testing.assert_allclose(halognn.infer(run, logits=True), want.numpy(), atol=1e-5)


class TestInterrupt(Case):
    def interrupt(self, launcher):
        """Trains in a process of its own, which is interrupted as a notebook's kernel is."""
        edge_index, x, y = random_graph()
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y))
        halognn.partition(self.at("p"), self.at("d"), 2, method="ldg")
        run = self.at("r")
        # a shell that starts tests in the background has them ignore interrupts
        script = (f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
                  f"import halognn; halognn.train({self.at('p')!r}, {run!r}, train__epochs=1000000, "
                  f"launcher={launcher!r})")
        with open(self.at("log"), "w+", encoding="utf-8") as log:
            with subprocess.Popen([sys.executable, "-c", script], stderr=log,
                                  start_new_session=True) as kernel:
                while not os.path.exists(os.path.join(run, "metrics.jsonl")):
                    self.assertIsNone(kernel.poll())
                    time.sleep(0.1)
                os.killpg(kernel.pid, signal.SIGINT)
                kernel.wait(300)
            log.seek(0)
            self.assertRegex(log.read(), f"KeyboardInterrupt: (.|\n)*--resume {run}")
        self.assertTrue(os.listdir(os.path.join(run, "checkpoints")))

    def test_one_process_saves(self):
        self.interrupt([])

    def test_ranks_save(self):
        mpirun = os.environ.get("HALOGNN_MPIRUN")
        if not mpirun:
            self.skipTest("HALOGNN_MPIRUN is not set: env.sh found no MPI, or was not sourced")
        version = subprocess.run([os.environ["HALOGNN"], "version"], capture_output=True, text=True)
        if re.search("^MPI +none", version.stdout, re.MULTILINE):
            self.skipTest("the program is built without MPI")
        self.interrupt([mpirun, "-np", "2"])


class TestPyG(Case):
    def setUp(self):
        super().setUp()
        self.torch, self.pyg = library("torch"), library("torch_geometric.data")
        edge_index, x, y = random_graph()
        self.data = self.pyg.Data(x=self.torch.from_numpy(x), y=self.torch.from_numpy(y),
                                  edge_index=self.torch.from_numpy(edge_index))

    def test_data(self):
        utils = library("torch_geometric.utils")
        masks = self.torch.from_numpy(np.arange(900).reshape(300, 3) % 7 == 0)
        self.data.train_mask = self.data.val_mask = self.data.test_mask = masks
        self.data.val_mask = ~masks & (masks.roll(1, 0))
        self.data.test_mask = self.torch.zeros_like(masks)
        self.data.edge_weight = self.torch.rand(1500)
        self.data.edge_attr = self.torch.rand(1500, 2)
        with self.assertRaisesRegex(halognn.HalognnError, "--split-index 0 to 2"):
            halognn.write_dataset(self.at("d"), self.data)
        report = halognn.write_dataset(self.at("d"), self.data, undirected=True, split_index=1)
        self.assertIn("2 columns of float32 for each edge", report)
        self.assertEqual(self.array("d", "edge_features").shape, (len(self.array("d", "indices")), 2))
        self.assertEqual(len(self.array("d", "edge_weights")), len(self.array("d", "indices")))
        want = utils.to_undirected(utils.remove_self_loops(self.data.edge_index)[0])
        self.assertEqual(edges_of(self.at("d")), pairs(want))
        np.testing.assert_array_equal(self.array("d", "train"), np.flatnonzero(masks[:, 1].numpy()))

    def test_refusals(self):
        hetero = self.pyg.HeteroData()
        hetero["paper"].x = self.torch.zeros(3, 2)
        hetero["paper", "cites", "paper"].edge_index = self.torch.zeros(2, 1, dtype=self.torch.long)
        hetero["paper"].year = self.torch.arange(3)
        hetero["paper", "cites", "paper"].edge_attr = self.torch.ones(1, 4)
        typed = halognn.from_pyg(hetero)
        typed.reverse = True
        with self.assertWarns(UserWarning) as caught:
            report = halognn.write_dataset(self.at("typed"), typed)
        self.assertEqual({str(w.message) for w in caught.warnings}, {
            "paper: array year is not read", "array edge_attr,paper,cites,paper is not read"})
        self.assertIn("type      paper: 3 vertices, 2 features", report)
        self.assertIn("relation  paper,rev_cites,paper", report)
        with self.assertRaisesRegex(ValueError, "graphs without types; reverse=True"):
            halognn.write_dataset(self.at("u"), hetero, undirected=True)
        with self.assertRaisesRegex(ValueError, "graph-level tasks are not supported"):
            halognn.from_pyg(self.pyg.Batch.from_data_list([self.data, self.data]))
        self.data.y = self.data.y.to_sparse()
        with self.assertRaisesRegex(ValueError, "to_dense"):
            halognn.from_pyg(self.data)
        with self.assertRaisesRegex(ValueError, "no edge_index"):
            halognn.from_pyg(self.pyg.Data(x=self.torch.zeros(3, 2)))


class TestDGL(Case):
    def test_graph(self):
        torch, dgl = library("torch"), library("dgl")
        edge_index, x, y = random_graph()
        source, target = (torch.from_numpy(ends) for ends in edge_index)
        g = dgl.graph((source, target), num_nodes=300)
        g.ndata["feat"], g.ndata["label"] = torch.from_numpy(x), torch.from_numpy(y)
        g.ndata["train_mask"] = torch.arange(300) < 100
        g.edata["w"] = torch.rand(1500)
        report = halognn.write_dataset(self.at("d"), g)
        self.assertIn("weights   one for each edge", report)
        weight = {}  # of an edge that comes several times, the sum
        for u, v, w in zip(*edge_index.tolist(), g.edata["w"].tolist()):
            weight[u, v] = weight.get((u, v), 0) + w
        indptr, indices = self.array("d", "indptr"), self.array("d", "indices")
        target = np.repeat(np.arange(300), np.diff(indptr))
        want = [weight[u, v] for u, v in zip(indices.tolist(), target.tolist())]
        np.testing.assert_allclose(self.array("d", "edge_weights"), want, rtol=1e-6)
        self.assertEqual(edges_of(self.at("d")), pairs(edge_index))
        np.testing.assert_array_equal(self.array("d", "features"), x)
        np.testing.assert_array_equal(self.array("d", "train"), np.arange(100))
        hetero = dgl.heterograph({("a", "to", "b"): ([0], [0]), ("b", "of", "a"): ([0], [0])})
        hetero.nodes["a"].data["year"], hetero.edges["to"].data["w"] = torch.ones(1), torch.ones(1)
        typed = halognn.from_dgl(hetero)
        self.assertEqual(set(typed.edges), {("a", "to", "b"), ("b", "of", "a")})
        self.assertEqual((list(typed.nodes["a"].more), list(typed.more["a", "to", "b"])),
                         (["year"], ["w"]))


class TestOthers(Case):
    def test_scipy(self):
        sparse = library("scipy.sparse")
        matrix = sparse.csr_matrix(([1.0, 2.0], ([0, 2], [1, 0])), shape=(4, 4))
        report = halognn.write_dataset(self.at("d"), halognn.from_scipy(matrix, y=[0, 1, 0, 1]))
        self.assertEqual(edges_of(self.at("d")), {(0, 1), (2, 0)})
        halognn.write_dataset(self.at("bare"), matrix)
        self.assertEqual(edges_of(self.at("bare")), {(0, 1), (2, 0)})
        self.assertEqual(repr(halognn.from_scipy(matrix)),
                         "Graph(4 vertices, 2 edges, edge_weight [2])")
        self.assertIn("weights   one for each edge", report)
        np.testing.assert_array_equal(self.array("d", "edge_weights"), [2.0, 1.0])
        with self.assertRaisesRegex(ValueError, "3 x 4"):
            halognn.from_scipy(sparse.csr_matrix((3, 4)))
        with self.assertRaisesRegex(ValueError, "toarray"):
            halognn.from_scipy(matrix, y=matrix)

    def test_networkx(self):
        networkx = library("networkx")
        g = networkx.karate_club_graph()
        for node in g:
            g.nodes[node]["degree"] = g.degree(node)
        graph = halognn.from_networkx(
            networkx.relabel_nodes(g, {0: "boss"}), features=["degree"], label="club")
        halognn.write_dataset(self.at("d"), graph)
        both = {pair for u, v in g.edges for pair in ((u, v), (v, u))}
        ids = [0 if name == "boss" else int(name) for name in halognn.source_ids(self.at("d"))]
        self.assertEqual({(ids[u], ids[v]) for u, v in edges_of(self.at("d"))}, both)
        self.assertEqual(self.array("d", "features")[:, 0].tolist(), [g.degree(n) for n in ids])
        self.assertEqual(len(set(self.array("d", "labels").tolist())), 2)
        with self.assertRaisesRegex(ValueError, "no attribute 'age'"):
            halognn.from_networkx(g, features=["age"])


if __name__ == "__main__":
    unittest.main()
