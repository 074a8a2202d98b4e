"""Numbers and words that the report and the web app share.

verdict          what predictions are worth, in sentences
comparison       the numbers of several predictions beside each other, with intervals
label_table      every label: how often it is there, how often that was expected, how well ranked
biased_labels    labels whose number of hits is no chance, under a false-discovery rate
budget           what an average number of labels per row means
"""

from credibly.summaries._bias import biased_labels
from credibly.summaries._budget import Budget, budget
from credibly.summaries._comparison import COLUMNS, Cell, Column, comparison
from credibly.summaries._labels import LabelSummary, label_table, summarize_columns
from credibly.summaries._names import names_of
from credibly.summaries._verdict import Verdict, verdict

__all__ = [
    "COLUMNS",
    "Budget",
    "Cell",
    "Column",
    "LabelSummary",
    "Verdict",
    "biased_labels",
    "budget",
    "comparison",
    "label_table",
    "names_of",
    "summarize_columns",
    "verdict",
]
