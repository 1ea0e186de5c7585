"""Tests that models in PyTorch, of its own layers, PyTorch Geometric's and DGL's, have the program's
logits, for every kind and option."""

import os
import sys
import unittest

import numpy as np

import halognn

sys.path.insert(0, os.path.dirname(__file__))
from test_halognn import Case, library, random_graph  # noqa: E402 (after the path)

OPTIONS = [
    *({"kind": kind, **more} for kind in ("sage", "gcn", "gin", "gat", "gatv2", "mlp") for more in (
        {"norm": "none"}, {"norm": "layer", "residual": True}, {"norm": "batch", "activation": "elu"},
        {"jumping": "cat"}, {"jumping": "max", "norm": "layer", "residual": True}, {"layers": 1})),
    {"aggregation": "max"}, {"kind": "gcn", "gcn_norm": "both"},
    *({"kind": kind, "head_merge": "mean", "heads": 3, "slope": 0.1} for kind in ("gat", "gatv2")),
    *({"kind": kind, "weights": True} for kind in ("sage", "gcn", "gin")),
    {"kind": "gcn", "gcn_norm": "both", "weights": True},
]


class TestModels(Case):
    def test_logits_are_the_programs(self):
        torch = library("torch")
        from halognn import models
        builders = {"torch": models.to_torch}
        for name, builder in ("torch_geometric", models.to_pyg), ("dgl.nn", models.to_dgl):
            try:
                library(name)
            except unittest.SkipTest as why:
                print(why, file=sys.stderr)
            else:
                builders[name] = builder
        edge_index, x, y = random_graph()
        edge_index = np.unique(edge_index[:, edge_index[0] != edge_index[1]], axis=1)
        weight = np.random.default_rng(2).uniform(0.5, 2, edge_index.shape[1]).astype(np.float32)
        for name, more in ("plain", {}), ("weighted", {"edge_weight": weight}):
            halognn.write_dataset(self.at(name), halognn.Graph(edge_index, 300, x, y, more=more))
            halognn.partition(self.at(name + "-1"), self.at(name), 1, method="ldg")
        rows, edges = torch.from_numpy(x).double(), torch.from_numpy(edge_index)
        for i, option in enumerate(OPTIONS):
            option = {"layers": 3, **option}
            data = "weighted" if option.pop("weights", False) else "plain"
            settings = {"model." + name: value for name, value in option.items()}
            run = halognn.train(self.at(data + "-1"), self.at(f"r{i}"), progress=False, **settings, **{
                "train.epochs": 1, "model.hidden": 12, "sample.fanouts": [4] * option["layers"]})
            logits = halognn.infer(run, logits=True)
            for name, builder in builders.items():
                weights = torch.from_numpy(weight).double() if data == "weighted" else None
                model, graph = builder(run).double(), (rows, edges)
                if name == "dgl.nn":
                    graph = library("dgl").graph(tuple(edges), num_nodes=300), rows
                with self.subTest(name, **option, data=data), torch.no_grad():
                    theirs = model(*graph, weights).numpy()
                    worst = np.max(np.abs(logits - theirs) / np.maximum(1, np.abs(theirs)))
                    self.assertLessEqual(worst, 1e-5)

    def test_large_scores_and_weights_that_are_zero(self):
        torch = library("torch")
        from halognn import models
        target = torch.tensor([0, 0, 1])
        self.assertEqual(models.share(torch.tensor([1.0, 3, 0]), target, 2).tolist(), [0.25, 0.75, 0])
        z = torch.tensor([[[1.0]], [[3.0]]])
        sums = models.attend(z, torch.tensor([[1000.0], [1000], [-1000]]), torch.tensor([0, 1, 1]),
                             target, True)
        self.assertEqual(sums.tolist(), [[2], [3]])

    # Tensors of another device than the CPU; meta computes shapes alone.
    def test_models_follow_their_device(self):
        torch = library("torch")
        edge_index, x, y = random_graph()
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y))
        halognn.partition(self.at("d-1"), self.at("d"), 1, method="ldg")
        for kind in "sage", "gcn", "gin", "gat", "gatv2", "mlp":
            run = halognn.train(self.at("d-1"), self.at(kind), progress=False, **{
                "model.kind": kind, "model.norm": "batch", "model.hidden": 12, "train.epochs": 1})
            model = halognn.to_torch(run).to("meta")
            logits = model(torch.empty(300, 6, device="meta"),
                           torch.empty(2, 1500, dtype=torch.long, device="meta"))
            self.assertEqual((logits.device.type, logits.shape[0]), ("meta", 300), kind)

    def test_features_of_edges_are_refused(self):
        library("torch")
        edge_index, x, y = random_graph()
        edge_index = np.unique(edge_index, axis=1)
        features = np.ones((edge_index.shape[1], 2), np.float32)
        halognn.write_dataset(self.at("d"), halognn.Graph(edge_index, 300, x, y,
                                                          more={"edge_attr": features}))
        halognn.partition(self.at("d-1"), self.at("d"), 1, method="ldg")
        for kind in "gine", "gatv2":
            run = halognn.train(self.at("d-1"), self.at(kind), progress=False, **{
                "model.kind": kind, "model.hidden": 12, "train.epochs": 1})
            with self.assertRaisesRegex(ValueError, "reads features of edges"):
                halognn.to_torch(run)


if __name__ == "__main__":
    unittest.main()
