"""``credibly joint fit PREDICTIONS --out joint.json``: which labels go together."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli import tables
from credibly.cli.command import Printed, option


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Fit how labels depend on each other, on held-out predictions with their truth.

    The command compares independence, a factor for the number of labels, and mixtures of labels
    that go together, by cross-validated joint log score. A richer model must be better by more than
    one standard error, and the log loss of single labels may rise by at most 1 %. Pass the file to
    `--joint-from` of search, sets, evaluate and serve.

    Examples:
      credibly joint fit held-out.parquet --out joint.json
      credibly search test.parquet '+dog +cat' --joint --joint-from joint.json
    """

    action: str = option(help="what to do", positional=True, choices=("fit",), metavar="fit")
    predictions: str = option(
        help="held-out predictions with their truth", positional=True, metavar="PREDICTIONS"
    )
    out: str | None = option(None, help="JSON file to write", metavar="FILE")
    components: str = option(
        "1,3", help="numbers of mixture components to try, separated by commas"
    )
    seed: int = option(0, help="seed of folds and starts", between=(0, 2**63 - 1))
    partial: bool = option(False, help="read a folder even if shards are missing")


def run(options: Options) -> None:
    from credibly.checks import InputError
    from credibly.notebook import counted
    from credibly.retrieve.joint.model_selection import fit_joint_file

    if options.out is None:
        raise InputError("`joint fit` must know where to write the model; add --out joint.json.")
    fitted = fit_joint_file(
        options.predictions,
        components=tuple(_numbers(options.components)),
        seed=options.seed,
        partial=options.partial,
    )
    fitted.model.write(options.out)
    if options.json:
        tables.print_json(
            {
                "chosen": fitted.chosen,
                "log_scores": fitted.log_scores,
                "log_losses": fitted.log_losses,
                "rows": fitted.rows,
            }
        )
    elif not options.quiet:
        rows = [
            [name, f"{score:.4f}", f"{fitted.log_losses[name]:.4f}"]
            for name, score in fitted.log_scores.items()
        ]
        columns = ["model", "joint log score per row", "log loss of single labels"]
        tables.print_table("", columns, rows)
        tables.print_text(
            f"{fitted.chosen} of {counted(fitted.rows, 'row')} with truth is in {options.out}"
        )


def _numbers(text: str) -> list[int]:
    from credibly.checks import InputError

    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"`components` must be whole numbers separated by commas; got {text!r}."
        ) from error
