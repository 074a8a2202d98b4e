"""Plots of predictions and losses. Each returns matplotlib Axes; pass ``ax`` to overlay."""

from credibly.checks import require
from credibly.plot.label_sets import set_sizes
from credibly.plot.losses import link, normalizer
from credibly.plot.predictions import reliability, retrieval

require("plot", "matplotlib")

__all__ = ["link", "normalizer", "reliability", "retrieval", "set_sizes"]
