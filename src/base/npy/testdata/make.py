"""Writes the golden files of this directory with NumPy: python3 make.py"""
import numpy as np
from numpy.lib import format as npf

x = np.arange(6, dtype=np.float32).reshape(3, 2) / 4
np.save("c.npy", x)
np.save("fortran.npy", np.asfortranarray(x))
with open("v2.npy", "wb") as f:
    npf.write_array(f, x, version=(2, 0))
np.save("big_endian.npy", x.astype(">f4"))
np.save("empty.npy", np.zeros((0, 5), np.int64))
np.save("objects.npy", np.array([{}, None], dtype=object))
# Every float16, and float32 numbers at and next to the points where rounding to float16 changes.
half = np.arange(65536, dtype=np.uint16).view(np.float16)
edge = half[np.isfinite(half)].astype(np.float32)
edge = np.unique(np.concatenate([(edge[:-1] + edge[1:]) / 2, [65504, 65519.996, 65520, 1e30]])[::16]).astype(np.float32)
edge = np.concatenate([edge, np.nextafter(edge, np.float32(np.inf)),
                       np.nextafter(edge, np.float32(-np.inf))])
with np.errstate(over="ignore"):
    np.savez_compressed("half.npz", wide=edge, half=edge.astype(np.float16).view(np.uint16),
                        all=half.astype(np.float32)[:31744])
np.savez("stored.npz", x=x, ids=np.array([3, 1, 2], np.int64), format=np.array(b"csr"),
         half=x.astype(np.float16), mask=np.array([True, False]))
