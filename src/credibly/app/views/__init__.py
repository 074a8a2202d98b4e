"""Numbers and words that the report and the web app share.

overview         the verdict, the labels to fix first, what to do next
verdict          what predictions are worth, in sentences
comparison       the numbers of several predictions beside each other, with intervals
paired_difference  one number of two methods, row by row; label_differences: of every label
label_table      every label: how often it is there, how often that was expected, how well ranked
label_atlas      the same with noise, flags and bins; label_pairs: which occur together
biased_labels    labels whose number of hits is no chance, under a false-discovery rate
budget           what an average number of labels per row means
outcome          what decisions by cost come to where the truth is known
cost_curve       cost per row over thresholds, with intervals
top_summary      what files with the most probable labels of each row are worth
observed_share   how often a label was there when its probability was about a given one
"""

from credibly.app.views.biased_labels import biased_labels
from credibly.app.views.budgets import Budget, budget, size_bars
from credibly.app.views.comparisons import COLUMNS, Cell, Column, comparison, comparison_table
from credibly.app.views.costs import (
    CostCurve,
    EntryCosts,
    Outcome,
    ThresholdCounts,
    cost_curve,
    outcome,
    threshold_counts,
)
from credibly.app.views.label_tables import LabelSummary, label_table, summarize_columns
from credibly.app.views.labels import AtlasRow, Pairs, label_atlas, label_pairs
from credibly.app.views.names import names_of
from credibly.app.views.observed import ObservedShare, observed_share
from credibly.app.views.paired import (
    Difference,
    LabelDifferences,
    label_differences,
    paired_difference,
)
from credibly.app.views.top_k import TopLabelSummary, TopSummary, top_summary
from credibly.app.views.verdict_and_steps import LabelToFix, NextStep, Overview, overview
from credibly.app.views.verdicts import Verdict, verdict

__all__ = [
    "COLUMNS",
    "AtlasRow",
    "Budget",
    "Cell",
    "Column",
    "CostCurve",
    "Difference",
    "EntryCosts",
    "LabelDifferences",
    "LabelSummary",
    "LabelToFix",
    "NextStep",
    "ObservedShare",
    "Outcome",
    "Overview",
    "Pairs",
    "ThresholdCounts",
    "TopLabelSummary",
    "TopSummary",
    "Verdict",
    "biased_labels",
    "budget",
    "comparison",
    "comparison_table",
    "cost_curve",
    "label_atlas",
    "label_differences",
    "label_pairs",
    "label_table",
    "names_of",
    "observed_share",
    "outcome",
    "overview",
    "paired_difference",
    "size_bars",
    "summarize_columns",
    "threshold_counts",
    "top_summary",
    "verdict",
]
