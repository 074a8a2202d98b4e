"""From probabilities to label sets, each rule with a sentence on what it guarantees.

    decision = AverageSize(5, guarantee="expected").fit(held_out_probabilities)
    sets = decision.predict(probabilities)      # bool, (n, L)
    print(decision.statement)

Fit on rows that were used neither for training nor for tuning; calibrate first.
"""

from credibly.decide.average_size import AverageSize
from credibly.decide.base import Decision
from credibly.decide.best_f import BestF
from credibly.decide.cost import Cost
from credibly.decide.coverage import Coverage
from credibly.decide.precision import Precision
from credibly.decide.recall import Recall
from credibly.decide.registry import from_state
from credibly.decide.threshold import Threshold
from credibly.decide.top_k import TopK

__all__ = [
    "AverageSize",
    "BestF",
    "Cost",
    "Coverage",
    "Decision",
    "Precision",
    "Recall",
    "Threshold",
    "TopK",
    "from_state",
]
