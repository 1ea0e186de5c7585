"""Sparse features of SciPy and PyTorch become the arrays of a CSR matrix."""

import unittest

import numpy as np

from halognn import graph
from test_halognn import library

X = np.array([[0, 0, 1.5], [2, 0, 0], [0, 0, 0], [0, 1, -3]], np.float32)


class Data(dict):
    """What from_pyg reads of a torch_geometric.data.Data."""
    num_nodes = 4

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


class SparseFeatures(unittest.TestCase):
    def holds(self, g):
        arrays = g.arrays()
        self.assertNotIn("x", arrays)
        np.testing.assert_array_equal(arrays["attr_indptr"], [0, 1, 2, 2, 4])
        np.testing.assert_array_equal(arrays["attr_indices"], [2, 0, 1, 2])
        np.testing.assert_array_equal(arrays["attr_data"], np.float32([1.5, 2, 1, -3]))
        np.testing.assert_array_equal(arrays["attr_shape"], X.shape)

    def test_scipy(self):
        sparse = library("scipy.sparse")
        self.holds(graph.from_scipy(sparse.eye(4).tocsr(), x=sparse.coo_matrix(X)))

    def test_tensors(self):
        library("scipy.sparse")
        torch = library("torch")
        x = torch.from_numpy(X)
        for form in (x.to_sparse(), x.to_sparse_csr()):
            self.holds(graph.from_pyg(Data(x=form, edge_index=torch.tensor([[0, 1], [1, 2]]))))
        self.holds(graph.from_pyg(Data(x=x.bfloat16().to_sparse(), edge_index=torch.tensor([[0], [1]]))))
        with self.assertRaisesRegex(ValueError, "sparse by rows alone"):
            graph.from_pyg(Data(x=x.to_sparse(1), edge_index=torch.tensor([[0], [1]])))
        with self.assertRaisesRegex(ValueError, "sparse"):
            graph.from_pyg(Data(y=x.to_sparse(), edge_index=torch.tensor([[0], [1]])))


if __name__ == "__main__":
    unittest.main()
