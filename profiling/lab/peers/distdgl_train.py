"""DistDGL: a server or, with DGL_ROLE=client, a trainer (distdgl.sh starts both). Trains GraphSAGE
or, on a graph of several types, R-GCN or R-SAGE (typed.py); types without features learn rows."""

import time

import commandline

ARGUMENTS = commandline.parse(
    "DistDGL", ["dgl", "torch"],
    addresses=dict(required=True, help="DistDGL's ip_config.txt"),
    parts=dict(required=True, help="the g.json of the partitions"),
    kind=dict(choices=["rgcn", "sage"], default="sage"),
    learned=dict(type=int, default=64, help="columns of learned rows"),
    graphbolt=dict(action="store_true", help="sample by GraphBolt"),
    classes=dict(type=int, required=True))

import dgl
import dgl.nn
import torch
import torch.distributed

import graph
import typed


def initial(shape, dtype):
    return torch.randn(shape, dtype=dtype)


def rows(g, columns):
    """For each vertex type the width of its rows, and what returns them by ids: a DistEmbedding if
    the type has no features and learns rows."""
    widths, read = {}, {}
    for kind in g.ntypes:
        if "feat" in g.nodes[kind].data:
            table = g.nodes[kind].data["feat"]
            widths[kind], read[kind] = table.shape[1], table.__getitem__
        else:
            widths[kind], read[kind] = columns, dgl.distributed.DistEmbedding(
                g.num_nodes(kind), columns, f"rows of {kind}", initial,
                g.get_node_partition_policy(kind))
    return widths, read


def main():
    a = ARGUMENTS
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    # A server stays here until all trainers have ended.
    dgl.distributed.initialize(a.addresses, use_graphbolt=a.graphbolt)
    torch.distributed.init_process_group("gloo")
    g = dgl.distributed.DistGraph("g", part_config=a.parts)
    labelled = next(kind for kind in g.ntypes if "train_mask" in g.nodes[kind].data)
    data, of_types = g.nodes[labelled].data, len(g.ntypes) > 1
    seeds = dgl.distributed.node_split(data["train_mask"], g.get_partition_book(), ntype=labelled,
                                       force_even=True)
    widths, read = rows(g, a.learned)
    learned = [r for r in read.values() if isinstance(r, dgl.distributed.DistEmbedding)]
    if of_types:
        model = typed.Model(a.kind, widths, g.canonical_etypes, labelled, a.hidden, a.classes,
                            len(a.fanouts))
    else:
        model = graph.Model(lambda i, o, _: dgl.nn.SAGEConv(i, o, "mean"), widths[labelled],
                            a.hidden,
                            a.classes, len(a.fanouts))
    # A minibatch may have no edge of a relation, and the last layer uses few.
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=of_types)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.003)]
    if learned:  # collective: force_even gives all trainers equally many minibatches
        optimizers.append(dgl.distributed.optim.SparseAdam(learned, lr=0.01))
    loader = dgl.dataloading.DistNodeDataLoader(
        g, {labelled: seeds} if of_types else seeds,
        dgl.dataloading.NeighborSampler(a.fanouts[::-1]), batch_size=a.batch,
        shuffle=True, drop_last=False)
    for epoch in range(1, a.epochs + 1):
        torch.distributed.barrier()
        begin, computing, steps, total = time.perf_counter(), 0.0, 0, 0.0
        with model.join():
            for frontier, out, blocks in loader:
                if of_types:
                    x = {kind: read[kind](ids) for kind, ids in frontier.items()}
                    y = data["label"][out[labelled]].long()
                else:
                    x, y = read[labelled](frontier), data["label"][out].long()
                start = time.perf_counter()
                loss = graph.loss_of(model, blocks, x, y, a.bf16)
                for o in optimizers:
                    o.zero_grad()
                loss.backward()
                for o in optimizers:
                    o.step()
                computing += time.perf_counter() - start
                steps, total = steps + 1, total + loss.item()
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            name = f"distdgl samplers={a.workers}"
            graph.report(name, epoch, time.perf_counter() - begin, computing, steps, total / steps)


if __name__ == "__main__":
    main()
