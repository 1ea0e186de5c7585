#!/usr/bin/env python3
"""pss.py MARK RANKS [SECONDS]: measures the memory of RANKS halognn processes whose command line
has MARK, as proportional set sizes: a page that n processes map counts as 1/n for each. Samples
every SECONDS [10], but waits at least five times as long as a sample takes, until they have ended.
Writes the sample with the largest sum as a line of JSON: MB of a rank by part, mean and largest.
Ranks are stopped during a sample, so that it is of one moment.

mpi is the library's files and shared memory, and the C heap, which is nearly all MPI's. arrays are
anonymous pages: the Go heap, the program's arrays outside it, and large arrays of MPI."""
import glob
import json
import os
import re
import signal
import sys
import time

PARTS = [  # the first part whose pattern matches the name of a mapping
    ("mpi", r"libmpi|libopen-|mca_|pmix|libpsm|libfabric|libuc[pst]|libevent|libhwloc|^\[heap\]|"
            r"/dev/shm|vader|ompi|SYSV"),
    ("program", r"/halognn$|\.so|\[stack\]|\[v"),
    ("arrays", r"^$|^\[anon|^/memfd|zero"),
    ("files", r""),
]
PARTS = [(name, re.compile(pattern)) for name, pattern in PARTS]


def memory(pid):
    """MB of a process by part."""
    sums, part = {name: 0 for name, _ in PARTS}, None
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            if words[0][-1] != ":":
                name = words[5].strip() if len(words) > 5 else ""
                part = next(p for p, pattern in PARTS if pattern.search(name))
            elif words[0] == "Pss:":
                sums[part] += int(words[1]) / 1e3
    return sums


def processes(mark):
    """The pids of ranks."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                args = f.read().split("\0")
        except OSError:
            continue
        if args[0].endswith("halognn") and any(mark in a for a in args):
            yield int(path.split("/")[2])


def look(mark):
    """The memory of all ranks at one moment."""
    pids = list(processes(mark))
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return [memory(pid) for pid in pids]
    except OSError:  # a process has ended
        return []
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass


def main():
    mark, ranks, every = sys.argv[1], int(sys.argv[2]), float((sys.argv[3:] or [10])[0])
    best, most, waited = None, 0, 0
    while waited < 60:  # seconds: until the launcher has started ranks, and after they have ended
        began = time.monotonic()
        found = look(mark) if len(list(processes(mark))) >= ranks else None
        took = time.monotonic() - began
        waited = 0 if found is not None else waited + every
        if best and found is None:
            break
        if found and sum(sum(m.values()) for m in found) > most:
            best, most = found, sum(sum(m.values()) for m in found)
        time.sleep(max(every, 5 * took))  # so that ranks run most of the time
    if not best:
        sys.exit(f"pss.py: {ranks} ranks were never seen at once")
    out = {"ranks": len(best), "pss": most / len(best),
           "largest": max(sum(m.values()) for m in best)}
    out.update({p: sum(m[p] for m in best) / len(best) for p, _ in PARTS})
    print(json.dumps({k: round(v, 1) for k, v in out.items()}))


main()
