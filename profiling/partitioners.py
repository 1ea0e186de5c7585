#!/usr/bin/env python3
"""Cuts datasets by several methods and prints a table of docs/results/partitioning.md.

    profiling/partitioners.py DATASET ... [--methods metis,kaminpar,ldg,contiguous] [--parts 4,16,64]
                              [--seed 1] [--out run/partitioners] [--limit 3600]

A row has the cut after repair, the largest part over the mean (of vertices, training seeds,
evaluated vertices and in-edges), the seconds of the whole command (verifying the dataset and writing
the parts, which is what `contiguous` takes, included), and the most memory that the process and its
children had, in bytes a stored edge: their own, and pages of mapped files. --keep-parts leaves the
parts in --out.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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
        for task in os.listdir(f"/proc/{pid}/task"):  # a child belongs to the thread that began it
            with open(f"/proc/{pid}/task/{task}/children") as list_:
                children += list_.read().split()
    except OSError:  # it has ended
        return private, files
    for child in children:
        of_child = resident(child)
        private, files = private + of_child[0], files + of_child[1]
    return private, files


def cut(program, data, parts, method, seed, out, limit):
    """Returns what one command printed, its seconds and its memory."""
    words = [program, "partition", "--data", data, "--parts", str(parts), "--method", method, "--seed",
             str(seed), "--allow-imbalance", "--force", "--out", out]
    begin, most = time.time(), (0, 0)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        while job.poll() is None and time.time() < begin + limit:
            now = resident(job.pid)
            most = max(most[0], now[0]), max(most[1], now[1])
            time.sleep(0.1)
        took = time.time() - begin
        if job.poll() is None:
            job.terminate()
            return f"ended after {limit} s", took, most
        return job.stdout.read(), took, most


def main():
    flags = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    flags.add_argument("data", nargs="+")
    flags.add_argument("--methods", default="metis,kaminpar,ldg,contiguous")
    flags.add_argument("--parts", default="4,16,64")
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--limit", type=float, default=3600)
    flags.add_argument("--out", default="run/partitioners")
    flags.add_argument("--keep-parts", action="store_true")
    o = flags.parse_args()
    program = os.environ.get("HALOGNN_BIN", os.path.join(ROOT, "bin", "halognn"))
    os.makedirs(o.out, exist_ok=True)
    print("| graph | parts | method | cut | largest / mean | s | own bytes an edge | of files |")
    print("|---|--:|---|--:|--:|--:|--:|--:|", flush=True)
    for data in o.data:
        with open(os.path.join(data, "meta.json")) as meta:
            edges = json.load(meta)["edges"]
        for parts in o.parts.split(","):
            for method in o.methods.split(","):
                out = os.path.join(o.out, f"{os.path.basename(data)}-{parts}-{method}")
                text, took, most = cut(program, data, parts, method, o.seed, out, o.limit)
                with open(out + ".log", "w") as log:
                    log.write(text)
                share = re.search(r"share\s+([0-9.]+)%", text)
                worst = re.search(r"largest/mean\s+(.*)", text)
                row = ["failed", text.strip().splitlines()[-1][:80] if text.strip() else ""]
                if share and worst:
                    row = [f"{share[1]} %", max(worst[1].split())]
                row += [f"{took:.1f}", f"{most[0] / edges:.1f}", f"{most[1] / edges:.1f}"]
                print("|", " | ".join([os.path.basename(data), parts, method] + row), "|", flush=True)
                if not o.keep_parts:
                    shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
