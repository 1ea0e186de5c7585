#!/usr/bin/env python3
"""gpu_products.py BENCHMARKS [--torch-device cuda|cpu]: compares the products that
BenchmarkProducts of compute/cuda has measured, read from a file of its output, with the same
products in PyTorch, which calls cuBLAS: same rows and columns, random factors. halognn's time
includes rounding the factors to bf16; PyTorch gets them in bf16. Both leave TF32 to cuBLAS. Prints
a line for each product, with the ratio of the rates.
"""
import argparse
import re
import sys
import time

GOAL = 0.9
LINE = re.compile(r"BenchmarkProducts/(\w+)/(\w+)/(\d+)x(\d+)x(\d+)\S*\s.*?([\d.e+-]+) TFLOP/s")


def product(torch, device, precision, kernel, rows, cols, out):
    """Returns a function that makes the product once."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    drawn = lambda *shape: (torch.rand(shape, device=device) - 0.5).to(dtype)
    x, y, w = drawn(rows, cols), drawn(rows, out), drawn(out, cols)
    a, b = {"MatMul": (x, w.t()), "MatMulInput": (y, w), "MatMulWeights": (y.t(), x)}[kernel]
    to = torch.empty(a.shape[0], b.shape[1], device=device, dtype=dtype)
    return lambda: torch.mm(a, b, out=to)


def seconds(torch, device, call):
    """Returns the seconds of a call: the best of some series, once the GPU's clock has risen."""
    synced = torch.cuda.synchronize if device == "cuda" else lambda: None
    series, least = (5, 0.2) if device == "cuda" else (1, 0)
    begin = time.perf_counter()
    calls = 0
    while calls == 0 or time.perf_counter() - begin < least:
        call()
        synced()
        calls += 1
    calls, best = min(calls, 100), float("inf")
    for _ in range(series):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        synced()
        best = min(best, (time.perf_counter() - begin) / calls)
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("benchmarks", help="the output of the benchmarks")
    p.add_argument("--torch-device", choices=["cuda", "cpu"], default="cuda")
    o = p.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("not run: torch is not installed")
    if o.torch_device == "cuda" and not torch.cuda.is_available():
        sys.exit("not run: torch sees no GPU")
    found = LINE.findall(open(o.benchmarks).read())
    if not found:
        sys.exit(f"{o.benchmarks} has no line of BenchmarkProducts")
    for precision, kernel, *shape, ours in found:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        rows, cols, out = map(int, shape)
        call = product(torch, o.torch_device, precision, kernel, rows, cols, out)
        theirs = 2e-12 * rows * cols * out / seconds(torch, o.torch_device, call)
        print(f"{precision} {kernel} [{rows},{cols}] and {out}: {float(ours):.1f} TFLOP/s, torch "
              f"{theirs:.1f}, {float(ours) / theirs:.2f} of it (goal {GOAL})")


if __name__ == "__main__":
    main()
