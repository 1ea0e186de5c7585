"""DGL in one process: inference with all neighbours, layer by layer, as in its examples."""

import commandline

ARGUMENTS = commandline.parse(
    "DGL, inference in one process", ["dgl", "torch"],
    kind=dict(choices=["sage", "gcn", "gin", "gat", "gatv2"], default="sage", help="the model"))

import time

import dgl
import torch

import graph


def infer(model, g, rows, batch, workers, bf16):
    """The logits of all vertices: computes a layer for all vertices before the next layer."""
    loader = dgl.dataloading.DataLoader(
        g, torch.arange(g.num_nodes()), dgl.dataloading.MultiLayerFullNeighborSampler(1),
        batch_size=batch, num_workers=workers)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        for i, layer in enumerate(model.layers):
            out = None
            for inputs, outputs, blocks in loader:
                h = layer(blocks[0], rows[inputs])
                if i < len(model.layers) - 1:
                    h = torch.relu(h)
                if out is None:
                    out = torch.empty(g.num_nodes(), h.shape[1], dtype=h.dtype)
                out[outputs[0]:outputs[-1] + 1] = h  # they are in order
            rows = out
    return rows


def main():
    a = ARGUMENTS
    graph.begin(a)
    data = graph.Dataset(a.data)
    none = torch.empty(0, dtype=torch.int64)
    g = dgl.graph(("csc", (data.indptr, data.indices.long(), none)), num_nodes=data.vertices)
    model = graph.Model(graph.layer_of(a.kind), data.features.shape[1], a.hidden,
                        data.classes, len(a.fanouts)).eval()
    for k in range(1, a.epochs + 1):
        begin = time.perf_counter()
        infer(model, g, data.features, a.batch, a.workers, a.bf16)
        seconds = time.perf_counter() - begin
        graph.report(f"dgl-inference workers={a.workers}", k, seconds, seconds, 0, float("nan"))


if __name__ == "__main__":
    main()
