"""Plots of predictions and losses. Each returns matplotlib Axes; pass ``ax`` to overlay."""

from credibly.checks import require
from credibly.plot.calibration import labels, reliability
from credibly.plot.label_sets import coverage, set_sizes
from credibly.plot.losses import link, normalizer
from credibly.plot.retrieval import hits, pairs, retrieval

require("plot", "matplotlib")

__all__ = [
    "coverage",
    "hits",
    "labels",
    "link",
    "normalizer",
    "pairs",
    "reliability",
    "retrieval",
    "set_sizes",
]
