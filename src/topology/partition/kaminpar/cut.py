"""Cuts a graph: cut.py GRAPH PARTS SEED THREADS CONTEXT OUT. GRAPH is in ParHIP's binary form,
OUT becomes an int32 .npy. Without arguments it says which KaMinPar there is."""
import array
import sys

import kaminpar

if not kaminpar.__64bit__:
    sys.exit("this kaminpar has 32-bit indices; install the wheel, pip install kaminpar")
if len(sys.argv) == 1:
    print(kaminpar.__version__)
    sys.exit()
graph, parts, seed, threads, context, out = sys.argv[1:]
kaminpar.reseed(int(seed))
solver = kaminpar.KaMinPar(int(threads), kaminpar.context_by_name(context))
loaded = kaminpar.load_graph(graph, kaminpar.GraphFileFormat.PARHIP, compress=True)
part = solver.compute_partition(loaded, int(parts), 0.03)
del loaded, solver
with open(out, "wb") as file:
    head = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(part)},), }}"
    head = head.ljust(-(len(head) + 11) % 64 + len(head)) + "\n"
    file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
    for i in range(0, len(part), 1 << 20):  # the bindings return a list; no second copy of it
        array.array("i", part[i : i + (1 << 20)]).tofile(file)
