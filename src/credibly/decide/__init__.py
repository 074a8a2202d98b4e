"""Rules that turn probabilities into label sets; each states what it guarantees.

    decision = AverageSize(5, guarantee="expected").fit(held_out_probabilities)
    sets = decision.predict(probabilities)      # bool, (n, L)
    print(decision.statement)

Calibrate first. Fit a rule on rows that were not used for training or tuning.
"""

from credibly import checks
from credibly.decide.average_size import AverageSize
from credibly.decide.base import Decision
from credibly.decide.guarantees import Coverage, Precision, Recall
from credibly.decide.thresholds import BestF, Cost, Threshold, TopK
from credibly.types import JsonObject

__all__ = [
    "AverageSize",
    "BestF",
    "Cost",
    "Coverage",
    "Precision",
    "Recall",
    "Threshold",
    "TopK",
    "from_state",
]

DECISIONS: dict[str, type[Decision]] = {
    kind.name: kind
    for kind in (Threshold, BestF, TopK, AverageSize, Coverage, Recall, Precision, Cost)
}


def from_state(state: JsonObject) -> Decision:
    """Return the fitted decision that ``state`` describes: the result of ``decision.state()``.

    Args:
        state: a dict of plain values, possibly read back from JSON.

    Raises:
        InputError: if it is not the state of a decision.

    Example:
        >>> from_state({"decision": "top-k", "k": 3})
        TopK(k=3)
    """
    if not isinstance(state, dict) or "decision" not in state:
        raise checks.InputError(
            f"a decision's state must be a dict with the key 'decision'; got {state!r:.80}."
        )
    name = str(state["decision"])
    if name not in DECISIONS:
        raise checks.InputError(f"unknown decision {name!r}. {checks.nearest(name, DECISIONS)}")
    try:
        return DECISIONS[name]._restore(state)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, checks.InputError):
            raise
        raise checks.InputError(
            f"the state of a {name!r} decision must hold numbers: {error}."
        ) from error
