"""``credibly joint fit PREDICTIONS --out joint.json``: which labels go together."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import option


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fit how labels depend on each other, on held-out predictions with their truth.

    `fit`: independence, a factor for the number of labels, and mixtures that know which labels go
    together are compared by cross-validated joint log score; a richer one is taken only if it is
    better by more than one standard error and keeps the log loss of single labels within a
    hundredth. The file written is what `--joint-from` of search, sets, evaluate, report and serve
    takes.
    `weigh`: write the weights of all rows of PREDICTIONS beside them, so that the first search of
    every later process is as fast as the next ones.

    Examples:
      credibly joint fit held-out.parquet --out joint.json
      credibly joint weigh test.parquet --joint-from joint.json
      credibly search test.parquet '+dog +cat' --joint --joint-from joint.json
    """

    action: str = option(
        help="what to do", positional=True, choices=("fit", "weigh"), metavar="fit|weigh"
    )
    predictions: str = option(
        help="fit: held-out predictions with their truth; weigh: predictions to search",
        positional=True,
        metavar="PREDICTIONS",
    )
    out: str | None = option(None, help="fit: JSON file to write", metavar="FILE")
    joint_from: str | None = option(None, help="weigh: the fitted .json", metavar="FILE")
    components: str = option("1,3", help="numbers of mixture components to try, by commas")
    seed: int = option(0, help="seed of folds and starts", between=(0, 2**63 - 1))
    partial: bool = option(False, help="read a folder although some of its shards are missing")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    return _fit(options) if options.action == "fit" else _weigh(options)


def _fit(options: Options) -> int:
    from credibly.checks import InputError
    from credibly.cli import tables
    from credibly.workflows.joint_models import fit_joint_file

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
        tables.print_text(f"{fitted.chosen} of {fitted.rows:,} rows with truth is in {options.out}")
    return 0


def _weigh(options: Options) -> int:
    from credibly.checks import InputError
    from credibly.cli import tables
    from credibly.retrieve.joint.row_weights import write_row_weights
    from credibly.workflows.joint_models import joint_from

    if options.joint_from is None:
        raise InputError("`joint weigh` must be given the fitted model: --joint-from joint.json.")
    joint = joint_from(options.joint_from, partial=options.partial)
    out = write_row_weights(options.predictions, joint, partial=options.partial)
    if options.json:
        tables.print_json({"out": str(out), "bytes": out.stat().st_size})
    elif not options.quiet:
        tables.print_text(f"the weights of all rows are in {out}")
    return 0


def _numbers(text: str) -> list[int]:
    from credibly.checks import InputError

    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"`components` must be whole numbers separated by commas; got {text!r}."
        ) from error
