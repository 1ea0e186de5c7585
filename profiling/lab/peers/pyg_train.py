"""PyTorch Geometric in one process: GraphSAGE on minibatches of NeighborLoader.

It samples with pyg-lib or torch-sparse, whichever is installed. Layers are trimmed to what the
seeds need if the loader counts the vertices of each hop (pyg-lib does, torch-sparse does not).
"""

import commandline

ARGUMENTS = commandline.parse("PyTorch Geometric, one process", ["torch", "torch_geometric"],
                              device={"default": "cpu", "choices": ["cpu", "cuda"],
                                      "help": "what computes; samples come from the host"})

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.utils import trim_to_layer

import graph


class Convolution(torch.nn.Module):
    """SAGEConv that takes blocks in the form of graph.Model."""

    def __init__(self, i, o):
        super().__init__()
        self.convolution = SAGEConv(i, o)

    def forward(self, block, h):
        layer, edges, vertices, per_hop = block
        if vertices is not None:
            h, edges, _ = trim_to_layer(layer, vertices, per_hop, h, edges)
            block[1] = edges
        return self.convolution(h, edges)


def main():
    a = ARGUMENTS
    graph.begin(a)
    data = graph.Dataset(a.data)
    degree = data.indptr[1:] - data.indptr[:-1]
    to = torch.repeat_interleave(torch.arange(data.vertices), degree)
    g = Data(x=data.features, y=data.labels, edge_index=torch.stack([data.indices.long(), to]))
    loader = NeighborLoader(g, num_neighbors=a.fanouts, input_nodes=data.train, shuffle=True,
                            batch_size=a.batch, num_workers=a.workers, is_sorted=True,
                            pin_memory=a.device == "cuda", persistent_workers=a.workers > 0)

    def counts():
        order = data.train[torch.randperm(len(data.train))]
        for seeds in order.split(a.batch):
            drawn = loader.node_sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
            yield len(drawn.row)

    if a.sampler:
        graph.time_sampler("pyg", counts())
        return

    def batches():
        for b in loader:
            b = b.to(a.device, non_blocking=True)
            vertices = getattr(b, "num_sampled_nodes", None)
            per_hop = getattr(b, "num_sampled_edges", None)
            shared = [0, b.edge_index, vertices, per_hop]
            yield Layers(shared, len(a.fanouts)), b.x, b.y[: b.batch_size]

    model = graph.Model(lambda i, o, _: Convolution(i, o), data.features.shape[1], a.hidden,
                        data.classes,
                        len(a.fanouts)).to(a.device)
    graph.train(f"pyg workers={a.workers}", model, batches, a.epochs, a.bf16)


class Layers:
    """The block of each layer in turn: the same lists, whose edges each layer trims for the
    next."""

    def __init__(self, shared, layers):
        self.shared, self.layers = shared, layers

    def __iter__(self):
        for layer in range(self.layers):
            self.shared[0] = layer
            yield self.shared


if __name__ == "__main__":
    main()
