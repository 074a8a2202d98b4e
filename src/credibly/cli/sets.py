"""``credibly sets PREDICTIONS --average-size 5``: which labels to return for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli._command import option

if TYPE_CHECKING:
    from credibly.decide import Decision
    from credibly.workflows import WrittenSets

RULES = ("average_size", "coverage", "best_f", "top_k", "threshold")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write the labels to return for each row, by a rule with a stated guarantee.

    Give one rule. Those that are fitted (--average-size, --coverage, --best-f) use held-out rows:
    another file (--fit-on), or a seeded part of PREDICTIONS; the sizes shown are those of the
    other rows. The file written has the columns id, labels, probabilities (likeliest first) and
    held_out (false for rows the rule was fitted on); CSV if it ends in .csv, else Parquet.

    Examples:
      credibly sets predictions.parquet --average-size 5 --out sets.parquet
      credibly sets test.parquet --average-size 5 --guarantee probability --delta 0.05 \\
        --fit-on held_out.parquet --out sets.csv
    """

    predictions: str = option(
        help="predictions file, or folder of parts", positional=True, metavar="PREDICTIONS"
    )
    out: str = option(help="file of label sets to write (.parquet or .csv)", metavar="FILE")
    average_size: float | None = option(None, help="labels per row on average, at most")
    guarantee: str = option(
        "expected",
        help="of the average size: in expectation, with probability 1 − delta, or none",
        choices=("expected", "probability", "none"),
    )
    delta: float = option(0.1, help="risk taken with --guarantee probability")
    coverage: float | None = option(
        None, help="share of rows whose set holds the one true label, e.g. 0.9"
    )
    best_f: float | None = option(
        None, help="per-label thresholds of the best F score of this beta"
    )
    top_k: int | None = option(None, help="this many likeliest labels for every row")
    threshold: float | None = option(None, help="labels at least this probable")
    fit_on: str | None = option(None, help="predictions file to fit on", metavar="FILE")
    fraction: float = option(0.5, help="share of PREDICTIONS to fit on, without --fit-on")
    seed: int = option(0, help="seed of that share", between=(0, 2**63 - 1))
    partial: bool = option(False, help="read a folder although some of its shards are missing")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    from credibly.cli import _tables
    from credibly.workflows import FitRows, write_sets

    with _tables.progress("rows", quiet=options.quiet or options.json) as advance:
        result = write_sets(
            options.predictions,
            _rule(options),
            options.out,
            fit_on=options.fit_on,
            fit_rows=FitRows(options.fraction, seed=options.seed),
            partial=options.partial,
            advance=advance,
        )
    if options.json:
        _tables.print_json(result.to_dict())
    elif not options.quiet:
        _show(result)
    return 0


def _rule(options: Options) -> Decision:
    from credibly import decide
    from credibly.checks import InputError

    given = [name for name in RULES if getattr(options, name) is not None]
    if len(given) != 1:
        flags = ", ".join("--" + name.replace("_", "-") for name in RULES)
        got = " and ".join("--" + name.replace("_", "-") for name in given) or "none"
        raise InputError(f"exactly one of {flags} must be given; got {got}.")
    guarantee: Any = {
        "expected": "expected",
        "probability": ("probability", options.delta),
        "none": None,
    }[options.guarantee]
    value: Any = getattr(options, given[0])
    if given[0] == "average_size":
        return decide.AverageSize(value, guarantee)
    kinds = {
        "coverage": decide.Coverage,
        "best_f": decide.BestF,
        "top_k": decide.TopK,
        "threshold": decide.Threshold,
    }
    return kinds[given[0]](value)


def _show(result: WrittenSets) -> None:
    from credibly.cli import _tables

    _tables.print_text(result.decision.statement)
    names = {"rows": result.held_out_rows, **result.numbers}
    columns = ["rows not used for fitting", ""]
    _tables.print_table("", columns, [[name, value] for name, value in names.items()])
    sizes = list(result.sizes.items())
    if len(sizes) > 12:
        rest = sum(count for _, count in sizes[11:])
        sizes = [*sizes[:11], (f"{sizes[11][0]}–{sizes[-1][0]}", rest)]
    _tables.print_table("", ["labels in the set", "rows"], [[str(k), v] for k, v in sizes])
    _tables.print_text(f"{result.rows:,} rows written to {result.out}")
