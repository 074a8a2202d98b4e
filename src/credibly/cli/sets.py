"""``credibly sets PREDICTIONS --average-size 5``: which labels to return for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli._command import option

if TYPE_CHECKING:
    from credibly.cli._label_sets import Tally
    from credibly.decide import Decision
    from credibly.predictions import Scan
    from credibly.types import Array

RULES = ("average_size", "coverage", "best_f", "top_k", "threshold")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which labels to return for each row, by a rule that says what it promises.

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
    average_size: float | None = option(None, help="labels a row on average, at most")
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
    seed: int = option(0, help="seed of that share")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    from pathlib import Path

    from credibly.checks import InputError
    from credibly.cli import _label_sets, _tables
    from credibly.predictions import Predictions

    rule = _rule(options)
    out = Path(options.out)
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"--out must end in .parquet or .csv; got {options.out!r}.")
    for taken in filter(None, (options.predictions, options.fit_on)):
        if Path(taken).resolve() == out.resolve():
            raise InputError(f"--out must not be an input; {options.out} is.")
    scan = Predictions.scan(options.predictions)
    scan.check_ids()
    rule, held_out = _fitted(rule, scan, options)
    document = {"version": "1.0", "kind": "sets", "decision": rule.state(), "promise": rule.promise}
    tally, at = _label_sets.Tally(), 0
    quiet = options.quiet or options.json
    with (
        _tables.progress("sets", total=scan.num_rows, quiet=quiet) as advance,
        _label_sets.sets_file(out, document) as file,
    ):
        for piece in scan.batches():
            sets = rule.predict(piece.probabilities)
            new = held_out[at : at + len(piece)]
            file.write(piece, sets, new)
            tally.add(sets[new], None if piece.targets is None else piece.targets[new])
            at += len(piece)
            advance(len(piece))
    if options.json:
        _tables.print_json(_document(rule, tally, held_out, options))
    elif not options.quiet:
        _show(rule, tally, held_out, options)
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


def _fitted(rule: Decision, scan: Scan, options: Options) -> tuple[Decision, Array]:
    """The rule, and which rows of ``scan`` it has not seen."""
    import numpy as np

    from credibly import checks
    from credibly.cli._label_sets import fit_rule
    from credibly.predictions import Predictions, label_mismatch

    if options.top_k is not None or options.threshold is not None:
        return rule, np.ones(scan.num_rows, dtype=bool)
    if options.fit_on is not None:
        other = Predictions.scan(options.fit_on)
        if set(other.labels) != set(scan.labels):
            raise checks.InputError(label_mismatch(options.fit_on, other.labels, scan.labels))
        seen = np.isin(scan.hashed_ids(), other.hashed_ids())
        if seen.all():
            raise checks.InputError(
                f"{scan.path} must have rows that are not in {options.fit_on}: what a rule "
                "promises, it promises for rows it was not fitted on. Leave out --fit-on."
            )
        return fit_rule(rule, other, scan.labels, None), ~seen
    checks.fraction("fraction", options.fraction, low_open=True, high_open=True)
    count = round(options.fraction * scan.num_rows)
    if not 1 <= count < scan.num_rows:
        raise checks.InputError(
            f"{scan.path} must have rows to fit on and others; a share of {options.fraction:g} of "
            f"{scan.num_rows} leaves {count} and {scan.num_rows - count}. Use --fit-on."
        )
    keep = np.zeros(scan.num_rows, dtype=bool)
    keep[np.random.default_rng(options.seed).permutation(scan.num_rows)[:count]] = True
    return fit_rule(rule, scan, scan.labels, keep), ~keep


def _show(rule: Decision, tally: Tally, held_out: Array, options: Options) -> None:
    from credibly.cli import _tables

    _tables.print_text(rule.promise)
    names = {"rows": tally.rows, **tally.numbers()}
    columns = ["rows not used for fitting", ""]
    _tables.print_table("", columns, [[name, value] for name, value in names.items()])
    sizes = list(tally.histogram().items())
    if len(sizes) > 12:
        rest = sum(count for _, count in sizes[11:])
        sizes = [*sizes[:11], (f"{sizes[11][0]}–{sizes[-1][0]}", rest)]
    _tables.print_table("", ["labels in the set", "rows"], [[str(k), v] for k, v in sizes])
    _tables.print_text(f"{len(held_out):,} rows written to {options.out}")


def _document(rule: Decision, tally: Tally, held_out: Array, options: Options) -> dict[str, Any]:
    return {
        "out": options.out,
        "promise": rule.promise,
        "decision": rule.state(),
        "rows": len(held_out),
        "held_out_rows": tally.rows,
        "numbers": tally.numbers(),
        "sizes": tally.histogram(),
    }
