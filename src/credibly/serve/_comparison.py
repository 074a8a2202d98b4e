"""Two predictions files beside each other: worked out once, when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from credibly.serve._charts import reliability_chart
from credibly.serve._served import ServedPredictions
from credibly.summaries import Cell, Verdict, comparison, names_of, verdict

RESAMPLES = 200


@dataclass(frozen=True)
class Comparison:
    """What the page of comparison says, whatever is searched for on it; files by name."""

    verdicts: dict[str, Verdict]
    numbers: dict[str, list[Cell]]
    chart: str


def compare(served: Sequence[ServedPredictions]) -> Comparison:
    """Return numbers with intervals, verdicts and both reliability curves."""
    names = names_of([each.path for each in served])
    samples = dict(zip(names, (each.sample for each in served), strict=True))
    curves = [
        (name, one.probabilities, one.targets)
        for name, one in samples.items()
        if one.targets is not None
    ]
    return Comparison(
        verdicts={name: verdict(one) for name, one in samples.items()},
        numbers=comparison(samples, resamples=RESAMPLES),
        chart=reliability_chart(curves, "compare", "Reliability of both files") if curves else "",
    )
