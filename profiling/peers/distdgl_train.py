"""DistDGL: a server or, with DGL_ROLE=client, a trainer of GraphSAGE (distdgl.sh starts both)."""

import time

import commandline

ARGUMENTS = commandline.parse(
    "DistDGL", ["dgl", "torch"],
    addresses=dict(required=True, help="DistDGL's ip_config.txt"),
    parts=dict(required=True, help="the g.json of the partitions"),
    classes=dict(type=int, required=True))

import dgl
import dgl.nn
import torch
import torch.distributed

import graph


def main():
    a = ARGUMENTS
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    dgl.distributed.initialize(a.addresses)  # a server stays here until all trainers have ended
    torch.distributed.init_process_group("gloo")
    g = dgl.distributed.DistGraph("g", part_config=a.parts)
    book = g.get_partition_book()
    seeds = dgl.distributed.node_split(g.ndata["train_mask"], book, force_even=True)
    rows, labels = g.ndata["feat"], g.ndata["label"]
    model = torch.nn.parallel.DistributedDataParallel(
        graph.Model(lambda i, o: dgl.nn.SAGEConv(i, o, "mean"), rows.shape[1], a.hidden,
                    a.classes, len(a.fanouts)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loader = dgl.dataloading.DistNodeDataLoader(
        g, seeds, dgl.dataloading.NeighborSampler(a.fanouts[::-1]), batch_size=a.batch,
        shuffle=True, drop_last=False)
    for epoch in range(1, a.epochs + 1):
        torch.distributed.barrier()
        begin, computing, steps, total = time.perf_counter(), 0.0, 0, 0.0
        with model.join():
            for frontier, out, blocks in loader:
                x, y = rows[frontier], labels[out].long()
                start = time.perf_counter()
                loss = graph.loss_of(model, blocks, x, y, a.bf16)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                computing += time.perf_counter() - start
                steps, total = steps + 1, total + loss.item()
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            name = f"distdgl samplers={a.workers}"
            graph.report(name, epoch, time.perf_counter() - begin, computing, steps, total / steps)


if __name__ == "__main__":
    main()
