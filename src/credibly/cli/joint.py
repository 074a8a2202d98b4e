"""``credibly joint fit PREDICTIONS --out joint.json``: fit a model of dependent labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from credibly.cli import terminal
from credibly.cli.command import File, Partial, Printed, input_error, option


@dataclass(frozen=True, kw_only=True)
class Options(Partial, Printed):
    """Fit a joint model of dependent labels on held-out predictions with truth.

    The command compares three models by cross-validated joint log score: independent labels, a
    factor for the number of labels, and mixtures of labels that appear together. It keeps a richer
    model only if it is better by more than one standard error and raises the log loss of single
    labels by at most 1 %. Pass the file to `--joint-from` of search, sets, evaluate and serve.

    Examples:
      credibly joint fit held-out.parquet --out joint.json
      credibly search test.parquet '+dog +cat' --joint --joint-from joint.json

    Args:
        action: what to do
        predictions: held-out predictions with truth
        out: JSON file to write
        components: numbers of mixture components to try, separated by commas
        seed: seed of the folds and the initial values
    """

    action: Literal["fit"] = option(positional=True, metavar="fit")
    predictions: str = option(positional=True)
    out: File | None = None
    components: str = "1,3"
    seed: int = option(0, between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.notebook import counted
    from credibly.retrieve.joint.model_selection import fit_joint_file

    if options.out is None:
        raise input_error("`joint fit` needs a file to write to; add --out joint.json.")
    fitted = fit_joint_file(
        options.predictions,
        components=tuple(_numbers(options.components)),
        seed=options.seed,
        partial=options.partial,
    )
    fitted.model.write(options.out)

    def show() -> None:
        rows = [
            [name, f"{score:.4f}", f"{fitted.log_losses[name]:.4f}"]
            for name, score in fitted.log_scores.items()
        ]
        columns = ["model", "joint log score per row", "log loss of single labels"]
        terminal.print_table("", columns, rows)
        terminal.print_text(
            f"{fitted.chosen} of {counted(fitted.rows, 'row')} with truth is in {options.out}"
        )

    names = ("chosen", "log_scores", "log_losses", "rows")
    terminal.tell(options, {name: getattr(fitted, name) for name in names}, show)


def _numbers(text: str) -> list[int]:

    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise input_error(
            f"`components` must be whole numbers separated by commas; got {text!r}."
        ) from error
