#!/usr/bin/env python3
"""fabric_figure.py < TABLE | python3 profiling/lab/figure.py OUT.svg: speed-ups of fabric.sh's
tables, one after the other on standard input, over the ranks, for each name and rate; dashed what
counts allow, and the ideal. Rows of one name that begin with other ranks are joined."""
import json
import sys


def main():
    series, allowed = {}, {}
    for line in sys.stdin:
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) < 10 or not cells[1].isdigit():
            continue
        name, ranks = f"{cells[0]}, {cells[2]} Gbit/s", int(cells[1])
        series.setdefault(name, {})[ranks] = float(cells[6])
        allowed.setdefault(f"{cells[0]}, counts allow", {})[ranks] = float(cells[7])
    curves = []

    def add(names, points, dashed, color):
        curves.append({"names": [names], "end": "", "px": sorted(points),
                       "py": [points[k] for k in sorted(points)], "dashed": dashed, "color": color,
                       "marks": None})

    for color, (name, points) in enumerate(series.items()):
        add(name, points, False, color)
    for color, (name, points) in enumerate(allowed.items()):
        add(name, points, True, len(series) + color)
    ranks = sorted({k for points in series.values() for k in points})
    add("ideal", {k: k / ranks[0] for k in ranks}, True, 7)
    json.dump({"curves": curves, "x": "ranks, each a node", "y": "times faster", "logX": True,
               "logY": True, "zero": False}, sys.stdout)


main()
