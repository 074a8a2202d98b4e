"""Metrics of probabilities, label sets and rankings.

Functions return numpy for numpy and torch for torch. Targets are 0, 1, soft in between, or unknown
(−1, −100 or NaN). Unknown entries do not count. Pass targets of only −1 and +1 as
``Targets.of(targets, coding="signed")`` or ``"unknown"``. A soft target y counts as present with
weight y and as absent with weight 1 − y. A metric that is made of sums over entries then equals its
value on data with each row repeated ten times, 10·y of them with the label. Other metrics refuse
soft targets. The average is explicit: pooled over entries, one value per label (``None``), or the
mean over labels (``"macro"``).

ranking       average_precision, auroc, curves, sample_average_precision, mean_average_precision,
              ranking_loss, one_error, coverage_error
calibration   calibration_error, top_k_calibration_error, calibration_noise, reliability
proper        log_loss, brier, kl_to_truth
sets          precision, recall, f1, jaccard, mcc, confusion, top_k_f1, hamming, exact_match,
              set_coverage, coverage_by_frequency, set_size
zero labels   zero_label
retrieval     retrieval_map
many labels   precision_at_k, ndcg_at_k, recall_at_k, inverse_propensities
trust         interval, paired_interval, proportion_interval
together      summary, summary_intervals, Summary (batches of rows), streaming (torchmetrics)
elsewhere     scorer (scikit-learn)

Each metric has one accumulator (``update``, ``merge``, ``state``). The function updates it with one
batch; code over files, processes and workers updates it with many.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.metrics.calibration import (
    brier,
    calibration_error,
    calibration_noise,
    kl_to_truth,
    log_loss,
    proportion_interval,
    reliability,
    top_k_calibration_error,
)
from credibly.metrics.intervals import interval, paired_interval, summary_intervals
from credibly.metrics.label_curves import curves
from credibly.metrics.label_sets import (
    confusion,
    coverage_by_frequency,
    exact_match,
    f1,
    hamming,
    jaccard,
    mcc,
    precision,
    recall,
    set_coverage,
    set_size,
    top_k_f1,
)
from credibly.metrics.ranking import (
    auroc,
    average_precision,
    coverage_error,
    mean_average_precision,
    one_error,
    ranking_loss,
    sample_average_precision,
)
from credibly.metrics.retrieval import retrieval_map
from credibly.metrics.scorers import scorer
from credibly.metrics.summaries import Summary, summary, zero_label
from credibly.metrics.top_labels import (
    inverse_propensities,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)

if TYPE_CHECKING:
    from credibly.metrics import streaming as streaming

__all__ = [
    "Summary",
    "auroc",
    "average_precision",
    "brier",
    "calibration_error",
    "calibration_noise",
    "confusion",
    "coverage_by_frequency",
    "coverage_error",
    "curves",
    "exact_match",
    "f1",
    "hamming",
    "interval",
    "inverse_propensities",
    "jaccard",
    "kl_to_truth",
    "log_loss",
    "mcc",
    "mean_average_precision",
    "ndcg_at_k",
    "one_error",
    "paired_interval",
    "precision",
    "precision_at_k",
    "proportion_interval",
    "ranking_loss",
    "recall",
    "recall_at_k",
    "reliability",
    "retrieval_map",
    "sample_average_precision",
    "scorer",
    "set_coverage",
    "set_size",
    "summary",
    "summary_intervals",
    "top_k_calibration_error",
    "top_k_f1",
    "zero_label",
]


def __getattr__(name: str) -> Any:
    if name == "streaming":  # only this module needs torch and torchmetrics
        return import_module("credibly.metrics.streaming")
    raise AttributeError(f"module 'credibly.metrics' has no attribute {name!r}")
