"""``credibly joint fit PREDICTIONS --out joint.json``: which labels go together."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli._command import option
from credibly.types import Array


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fit how labels depend on each other, on held-out predictions with their truth.

    Independence, a factor for the number of labels, and mixtures that know which labels go together
    are compared by cross-validated joint log score; a richer one is taken only if it is better by
    more than one standard error. The file written is what `credibly search --joint` uses.

    Examples:
      credibly joint fit held-out.parquet --out joint.json
      credibly search test.parquet '+dog +cat' --joint --joint-from joint.json
    """

    action: str = option(help="what to do", positional=True, choices=("fit",), metavar="fit")
    predictions: str = option(
        help="held-out predictions with their truth", positional=True, metavar="PREDICTIONS"
    )
    out: str = option(help="JSON file to write", metavar="FILE")
    components: str = option("1,3", help="numbers of mixture components to try, by commas")
    seed: int = option(0, help="seed of folds and starts", between=(0, 2**63 - 1))
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    from credibly.checks import InputError
    from credibly.cli import _tables
    from credibly.predictions import Predictions
    from credibly.retrieve import fit_joint

    held_out = Predictions.read(options.predictions)
    if held_out.targets is None:
        raise InputError(
            f"`joint fit` must be given truth; {options.predictions} has none. Name held-out "
            "predictions with their truth."
        )
    fitted = fit_joint(
        held_out.probabilities,
        hard_targets(held_out.targets),
        held_out.labels,
        coding="unknown",
        components=_numbers(options.components),
        seed=options.seed,
    )
    fitted.model.write(options.out)
    if options.json:
        _tables.print_json(
            {"chosen": fitted.chosen, "log_scores": fitted.log_scores, "rows": fitted.rows}
        )
    elif not options.quiet:
        rows = [[name, f"{score:.4f}"] for name, score in fitted.log_scores.items()]
        _tables.print_table("", ["model", "joint log score per row"], rows)
        _tables.print_text(
            f"{fitted.chosen} of {fitted.rows:,} rows with truth is in {options.out}"
        )
    return 0


def hard_targets(targets: Array) -> Array:
    """Return targets with soft ones as unknown: they say neither yes nor no."""
    import numpy as np

    return np.where((targets == 0) | (targets == 1), targets, -1)


def _numbers(text: str) -> list[int]:
    from credibly.checks import InputError

    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"`components` must be whole numbers separated by commas; got {text!r}."
        ) from error
