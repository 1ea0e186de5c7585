"""Draws a figure of profiling/lab/papers: python3 profiling/lab/figure.py OUT.svg < NUMBERS.json

NUMBERS.json is a chart.Curves or a chart.Bars of src/base/chart. Needs matplotlib.
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "halognn", "svg.fonttype": "none"})
from matplotlib import pyplot  # noqa: E402 (after the backend)


def curves(axes, chart):
    for curve in chart["curves"]:
        axes.plot(curve["px"], curve["py"], label=" = ".join(curve["names"]) + curve["end"],
                  marker="o" if len(curve["px"]) <= 40 else None, markersize=4,
                  linestyle="--" if curve["dashed"] else "-", color=f"C{curve['color'] % 10}")
        for mark in curve["marks"] or []:
            axes.axvline(mark, 0, 0.03, color=f"C{curve['color'] % 10}")
    axes.set(xlabel=chart["x"], ylabel=chart["y"], xscale="log" if chart["logX"] else "linear",
             yscale="log" if chart["logY"] else "linear")
    if chart["zero"]:
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def bars(axes, chart):
    rows = [bar["Name"] for bar in chart["Bars"]]
    left = [0.0] * len(rows)
    for i, piece in enumerate(chart["Pieces"]):
        values = [bar["Values"][i] for bar in chart["Bars"]]
        if any(values):
            drawn = axes.barh(rows, values, left=left, label=piece["Name"])
            left = [a + b for a, b in zip(left, values)]
    axes.bar_label(drawn, [bar["End"] for bar in chart["Bars"]], padding=4)
    axes.invert_yaxis()
    axes.set_xlabel(chart["X"])
    if len(chart["Pieces"]) > 1:
        axes.legend(frameon=False)


def main():
    chart = json.load(sys.stdin)
    figure, axes = pyplot.subplots(figsize=(7.6, 3.6), layout="constrained")
    (curves if "curves" in chart else bars)(axes, chart)
    figure.savefig(sys.argv[1], metadata={"Date": None})


if __name__ == "__main__":
    main()
