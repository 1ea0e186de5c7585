#!/usr/bin/env python3
"""Cuts datasets by several methods and prints the table of docs/results/partitioning.md.

    profiling/lab/partitioners.py DATASET ... [--methods metis,kaminpar,ldg,contiguous]
                                  [--parts 4,16,64] [--seed 1] [--out run/partitioners]
                                  [--limit 3600] [--more "--order vip"]

A row has the cut after repair, the largest part over the mean (of vertices, training seeds,
evaluated vertices and in-edges), the processor seconds of the whole command (including verifying
the dataset and writing the parts, which is all that `contiguous` does), and the most memory of the
process and its children, in bytes for each stored edge: private memory, and pages of mapped files.
--out keeps the rows, so that another call can continue. --keep-parts leaves the parts there too;
--more adds flags to `halognn partition`.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def resident(pid):
    """Bytes of a process and its children: private, of files."""
    private = files = 0
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    private += int(line.split()[1]) << 10
                elif line.startswith(("RssFile:", "RssShmem:")):
                    files += int(line.split()[1]) << 10
        children = []
        # a child is listed under the thread that started it
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as list_:
                children += list_.read().split()
    except OSError:  # it has ended
        return private, files
    for child in children:
        of_child = resident(child)
        private, files = private + of_child[0], files + of_child[1]
    return private, files


def cut(program, data, parts, method, seed, out, limit, more):
    """Returns what one command printed, its processor seconds and its memory."""
    words = [program, "partition", "--data", data, "--parts", str(parts), "--method", method, "--seed",
             str(seed), "--allow-imbalance", "--force", "--out", out, *more.split()]
    begin, most, ended = time.time(), (0, 0), 0
    with open(out + ".log", "w+") as log:
        job = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        while not ended:
            now = resident(job.pid)
            most = max(most[0], now[0]), max(most[1], now[1])
            time.sleep(0.1)
            if time.time() > begin + limit:
                log.write(f"ended after {limit} s")
                job.terminate()
                limit = float("inf")
            ended, status, used = os.wait4(job.pid, os.WNOHANG)  # also of its children
        job.returncode = status
        log.seek(0)
        return log.read(), used.ru_utime + used.ru_stime, most


def row(program, data, parts, method, o):
    """Returns the cells of a row, from an earlier call if there are any."""
    with open(os.path.join(data, "meta.json")) as meta:
        meta = json.load(meta)
    out = os.path.join(o.out, f"{os.path.basename(data)}-{parts}-{method}-{o.seed}")
    try:
        with open(out + ".json") as file:
            kept = json.load(file)
        if kept["edges"] == meta["edges"] and kept.get("more", "") == o.more:
            return kept["cells"]
    except OSError:
        pass
    text, took, most = cut(program, data, parts, method, o.seed, out, o.limit, o.more)
    share = re.search(r"share\s+([0-9.]+)%", text)
    worst = re.search(r"largest/mean\s+(.*)", text)
    written = "written to" in text
    cells = ["failed", text.strip().splitlines()[-1][:80] if text.strip() else ""]
    if written:
        cells = [f"{share[1]} %", max(worst[1].split())]
    cells += [f"{took:.1f}"] + [f"{bytes_ / meta['edges']:.1f}" for bytes_ in most]
    if written:
        with open(out + ".json", "w") as file:
            json.dump({"edges": meta["edges"], "more": o.more, "cells": cells}, file)
    if not o.keep_parts:
        shutil.rmtree(out, ignore_errors=True)
    return cells


def main():
    flags = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    flags.add_argument("data", nargs="+")
    flags.add_argument("--methods", default="metis,kaminpar,ldg,contiguous")
    flags.add_argument("--parts", default="4,16,64")
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--limit", type=float, default=3600)
    flags.add_argument("--out", default="run/partitioners")
    flags.add_argument("--more", default="")
    flags.add_argument("--keep-parts", action="store_true")
    o = flags.parse_args()
    program = os.environ.get("HALOGNN_BIN", os.path.join(ROOT, "bin", "halognn"))
    os.makedirs(o.out, exist_ok=True)
    print("| graph | parts | method | cut | largest / mean | processor s | own bytes an edge | of files |")
    print("|---|--:|---|--:|--:|--:|--:|--:|", flush=True)
    for data in map(os.path.normpath, o.data):
        graph = os.path.basename(data)
        for parts in o.parts.split(","):
            number = parts
            for method in o.methods.split(","):
                print("|", " | ".join([graph, number, method] + row(program, data, parts, method, o)),
                      "|", flush=True)
                graph = number = ""


if __name__ == "__main__":
    main()
