"""What a decision can guarantee of recall and precision, and of what they are a mean."""

from __future__ import annotations

from typing import Any, Literal

from credibly import checks
from credibly.types import Array

Guarantee = Literal["expected"] | tuple[Literal["probability"], float] | None
Per = Literal["row", "label"]


def as_guarantee(guarantee: Any) -> Guarantee:
    """Return a guarantee: None, ``"expected"`` or ``("probability", delta)``."""
    if isinstance(guarantee, (tuple, list)) and len(guarantee) == 2:
        checks.choice("guarantee", guarantee[0], ("probability",))
        checks.fraction("delta", guarantee[1], low_open=True, high_open=True)
        return ("probability", float(guarantee[1]))
    if guarantee is None or guarantee == "expected":
        return None if guarantee is None else "expected"
    raise checks.InputError(
        f'`guarantee` must be None, "expected" or ("probability", delta); got {guarantee!r}.'
    )


def risk_of(guarantee: Guarantee) -> float:
    """Return the delta of a guarantee with a probability."""
    assert isinstance(guarantee, tuple)
    return guarantee[1]


def one_per(per: Any) -> Per:
    """Return ``per``: whether a mean is over rows, or there is one number per label."""
    return checks.choice("per", per, ("row", "label"))


def hard_truth(who: str, truth: Array) -> None:
    """Refuse soft targets, which are no counts of rows."""
    soft = (truth > 0) & (truth < 1)
    if soft.any():
        raise checks.InputError(
            f'{who} with `per="label"` needs targets of 0, 1 or unknown; got '
            f'{float(truth[soft][0]):g}. Use `per="row"`, or round the targets.'
        )
