"""Plots of predictions and losses. Each returns matplotlib Axes; pass ``ax`` to overlay."""

from credibly.checks import require
from credibly.plot.calibration import labels, reliability, reliability_diagram
from credibly.plot.label_sets import coverage, coverage_curve, coverage_line, set_sizes
from credibly.plot.losses import link, normalizer
from credibly.plot.retrieval import hits, pairs, retrieval
from credibly.plot.svg_text import svg

require("plot", "matplotlib")

__all__ = [
    "coverage",
    "coverage_curve",
    "coverage_line",
    "hits",
    "labels",
    "link",
    "normalizer",
    "pairs",
    "reliability",
    "reliability_diagram",
    "retrieval",
    "set_sizes",
    "svg",
]
