"""``credibly sets PREDICTIONS --average-size 5``: which labels to return for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli import tables
from credibly.cli.command import Scanned, option

if TYPE_CHECKING:
    from credibly.decide.base import Decision
    from credibly.pipeline import Pipeline
    from credibly.workflows.label_sets import WrittenSets

RULES = (
    "average_size",
    "coverage",
    "recall",
    "precision",
    "best_f",
    "top_k",
    "threshold",
    "cost",
    "joint_coverage",
    "most_probable",
    "apply",
)
COSTS = ("miss", "false-alarm", "review")


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Write the labels to return for each row, by a rule of your choice.

    Give one rule. Fitted rules (--average-size, --coverage, --recall, --precision, --best-f) need
    held-out rows: another file (--fit-on), or a random part of PREDICTIONS; the table shows the
    other rows. The file written has the columns id, labels, probabilities
    (most probable first), held_out (false for rows the rule was fitted on) and, with the cost of a
    review, review; CSV if it ends in .csv, else Parquet.

    Examples:
      credibly sets predictions.parquet --average-size 5 --out sets.parquet
      credibly sets test.parquet --average-size 5 --guarantee probability --delta 0.05 \\
        --fit-on held_out.parquet --out sets.csv
      credibly sets predictions.parquet --recall 0.9 --guarantee 0.1 --out sets.parquet
      credibly sets predictions.parquet --threshold 0.5,cat=0.3 --out sets.parquet
      credibly sets test.parquet --joint-coverage 0.9 --joint-from joint.json --out sets.parquet
      credibly sets predictions.parquet --cost miss=5,false-alarm=1,review=0.5 --out sets.csv
      credibly sets held_out.parquet --recall 0.9 --out sets.parquet --save rule.json
      credibly sets new.parquet --apply rule.json --out new_sets.parquet
      credibly sets held_out.parquet --recall 0.9 --out sets.csv --map map.json --save model.json
    """

    predictions: str = option(
        help="predictions file, or folder of shards", positional=True, metavar="PREDICTIONS"
    )
    out: str = option(
        help="file of label sets to write (.parquet, .csv; - prints CSV); with spark a folder",
        metavar="FILE",
        stdout=".csv",
    )
    average_size: float | None = option(None, help="labels per row on average, at most")
    guarantee: str | None = option(
        None,
        help="of size, recall or precision: expected, probability, none, or a number: the risk "
        "that it does not hold (default: expected; for --precision 0.1)",
        metavar="GUARANTEE",
    )
    delta: float = option(0.1, help="risk taken with --guarantee probability")
    recall: float | None = option(
        None, help="share of the present labels that sets must contain, e.g. 0.9"
    )
    precision: float | None = option(None, help="share of the selected labels that must be right")
    per: str = option(
        "row",
        help="recall and precision as a mean over rows, or for every label with a threshold each",
        choices=("row", "label"),
    )
    coverage: float | None = option(
        None, help="share of rows whose set contains the one true label, e.g. 0.9"
    )
    best_f: float | None = option(
        None, help="per-label thresholds of the best F score of this beta"
    )
    min_precision: float | None = option(
        None, help="with --best-f: only thresholds with this precision on the fitted rows"
    )
    top_k: int | None = option(None, help="this many most probable labels for every row")
    threshold: str | None = option(
        None, help="labels with at least this probability; by label: 0.5,cat=0.3,dog=0.6"
    )
    cost: str | None = option(
        None,
        help="cost of a miss, a false alarm, a review: miss=5,false-alarm=1,review=0.5",
    )
    joint_coverage: float | None = option(
        None, help="share of rows whose set contains all true labels, by joint probabilities"
    )
    most_probable: bool | None = option(None, help="the most probable label set of each row")
    joint_from: str | None = option(
        None,
        help="for --joint-coverage and --most-probable: held-out predictions to fit joint "
        "probabilities on, or a .json of `joint fit`",
        metavar="FILE",
    )
    apply: str | None = option(
        None, help="apply a rule stored by --save, without fitting", metavar="FILE"
    )
    save: str | None = option(
        None, help="store the fitted rule and its labels as JSON", metavar="FILE"
    )
    map: str | None = option(
        None,
        help="with --save: the map.json that made the probabilities, stored together with the rule "
        "for `credibly export` and `credibly serve --map`",
        metavar="FILE",
    )
    fit_on: str | None = option(None, help="predictions file to fit on", metavar="FILE")
    fraction: float = option(0.5, help="share of PREDICTIONS to fit on, without --fit-on")
    seed: int = option(0, help="seed of that share", between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.workflows import FitRows, write_sets

    with tables.progress("rows", quiet=options.quiet or options.json) as advance:
        result = write_sets(
            options.predictions,
            _rule(options),
            options.out,
            fit_on=options.fit_on,
            fit_rows=FitRows(options.fraction, seed=options.seed),
            partial=options.partial,
            executor=options.engine,
            advance=advance,
        )
    if options.save is not None:
        result.write_rule(options.save, options.map)
    tables.tell(options, result.to_dict(), lambda: _show(result))


def _rule(options: Options) -> Decision | Pipeline:
    from credibly import decide
    from credibly.checks import InputError

    given = [name for name in RULES if getattr(options, name) not in (None, False)]
    if len(given) != 1:
        flags = ", ".join("--" + name.replace("_", "-") for name in RULES)
        got = " and ".join("--" + name.replace("_", "-") for name in given) or "none"
        raise InputError(f"exactly one of {flags} must be given; got {got}.")
    if options.map is not None and options.save is None:
        raise InputError("--map is stored together with the rule; add --save FILE.")
    if options.min_precision is not None and given != ["best_f"]:
        raise InputError("--min-precision goes with --best-f; give both or neither.")
    if given[0] in ("joint_coverage", "most_probable"):
        if options.save is not None:
            raise InputError("--save stores rules of single labels; joint rules cannot be stored.")
        return _joint_rule(options)
    if given[0] == "apply":
        return _stored_rule(options)
    if options.joint_from is not None:
        raise InputError("--joint-from goes with --joint-coverage or --most-probable; add one.")
    value: Any = getattr(options, given[0])
    if given[0] == "average_size":
        return decide.AverageSize(value, _guarantee(options, "expected"))
    if given[0] == "recall":
        return decide.Recall(value, _guarantee(options, "expected"), _per(options))
    if given[0] == "precision":
        return decide.Precision(value, _guarantee(options, "probability"), _per(options))
    if given[0] == "best_f":
        return decide.BestF(value, options.min_precision)
    if given[0] == "threshold":
        default, by_label = _assignments("--threshold", value)
        return decide.Threshold(by_label, default) if by_label else decide.Threshold(default)
    if given[0] == "cost":
        return _cost(value)
    return decide.TopK(value) if given[0] == "top_k" else decide.Coverage(value)


def _stored_rule(options: Options) -> Pipeline:
    from credibly.checks import InputError
    from credibly.pipeline import Pipeline

    if options.fit_on is not None or options.save is not None:
        raise InputError("--apply uses a stored rule as it is; leave out --fit-on and --save.")
    stored = Pipeline.read(str(options.apply))
    if stored.decision is None or stored.labels is None:
        raise InputError(
            f"{options.apply} must hold a rule and the names of its labels. Write it with "
            "`credibly sets … --save FILE`."
        )
    return stored


def _joint_rule(options: Options) -> Decision:
    from credibly.checks import InputError
    from credibly.retrieve.joint.label_sets import JointCoverage, MostProbableSet
    from credibly.retrieve.joint.model_selection import joint_from

    if options.joint_from is None:
        raise InputError(
            "--joint-coverage and --most-probable must know which labels go together; name "
            "held-out predictions, or a .json of `credibly joint fit`: --joint-from FILE."
        )
    if options.joint_from in (options.predictions, options.fit_on):
        raise InputError(
            f"--joint-from must be other rows than those to decide on or to fit on; got "
            f"{options.joint_from}."
        )
    joint = joint_from(options.joint_from, partial=options.partial)
    if options.joint_coverage is None:
        return MostProbableSet(joint)
    return JointCoverage(joint, options.joint_coverage)


def _per(options: Options) -> Any:
    return options.per


def _guarantee(options: Options, usual: str) -> Any:
    """Return a guarantee as decisions take it: a number is the risk that it does not hold."""
    from credibly.checks import InputError

    text = options.guarantee or usual
    if text in ("expected", "none", "probability"):
        return {
            "expected": "expected",
            "none": None,
            "probability": ("probability", options.delta),
        }[text]
    try:
        return ("probability", float(text))
    except ValueError:
        raise InputError(
            f"--guarantee must be expected, probability, none or a risk such as 0.1; got {text!r}."
        ) from None


def _assignments(flag: str, text: str) -> tuple[float, dict[str, float]]:
    """Return the plain number of ``0.5,cat=0.3`` (½ without one) and the named ones.

    Names with a comma are quoted as in CSV: ``0.5,"salt, pepper=0.3"``.
    """
    import csv

    from credibly.checks import InputError

    default, named = 0.5, {}
    for part in next(csv.reader([text], skipinitialspace=True), []):
        name, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise InputError(
                f"{flag} must be numbers, or NAME=NUMBER separated by commas; got {part!r}."
            ) from None
        if equals:
            named[name.strip()] = value
        else:
            default = value
    return default, named


def _cost(text: str) -> Decision:
    from credibly.checks import InputError, nearest
    from credibly.decide import Cost

    _, costs = _assignments("--cost", text)
    for name in costs:
        if name.replace("_", "-") not in COSTS:
            raise InputError(f"--cost has no part {name!r}. {nearest(name, COSTS)}")
    costs = {name.replace("-", "_"): value for name, value in costs.items()}
    if "miss" not in costs:
        raise InputError(f"--cost must name the cost of a miss, as in miss=5; got {text!r}.")
    return Cost(**costs)


def _show(result: WrittenSets) -> None:
    from credibly.notebook import counted

    tables.print_text(result.decision.statement)
    names = {"rows": result.held_out_rows, **result.numbers}
    columns = ["rows not used for fitting", ""]
    tables.print_table("", columns, [[name, value] for name, value in names.items()])
    sizes = list(result.sizes.items())
    if len(sizes) > 12:
        rest = sum(count for _, count in sizes[11:])
        sizes = [*sizes[:11], (f"{sizes[11][0]}–{sizes[-1][0]}", rest)]
    tables.print_table("", ["labels in the set", "rows"], [[str(k), v] for k, v in sizes])
    for words, labels in (
        ("every set", result.always_selected),
        ("no set", result.never_selected),
    ):
        if labels:
            listed = ", ".join(labels[:5]) + (", …" if len(labels) > 5 else "")
            tables.print_text(
                f"{counted(len(labels), 'label')} in {words}: too few known rows to do better: "
                f"{listed}"
            )
    limits = [[name, value] for name, value in result.thresholds.items()]
    if limits:
        tables.print_table("", ["label", "threshold"], limits[:20])
        if len(limits) > 20:
            tables.print_text(f"{len(limits) - 20} more thresholds: --json or --save FILE")
    tables.print_text(f"{counted(result.rows, 'row')} written to {result.out}")
