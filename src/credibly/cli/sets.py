"""``credibly sets PREDICTIONS --average-size 5``: which labels to return for each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, input_error, option

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
SHOWN = 20
"""Set sizes and thresholds that are printed."""
NEEDS = {
    "map": ("save",),
    "min_precision": ("best_f",),
    "joint_from": ("joint_coverage", "most_probable"),
    "joint_coverage": ("joint_from",),
    "most_probable": ("joint_from",),
}
"""Options that change nothing without another one."""


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Choose a label set for each row by a decision rule.

    Give exactly one rule. --average-size, --coverage, --recall, --precision and --best-f are fitted
    on another file (--fit-on) or on a random part of PREDICTIONS. The table shows the metrics of
    the other rows. OUT has the columns id, labels and probabilities (the most probable first), and
    held_out (false for rows that the rule was fitted on). With a cost of review, it also has the
    column review: the labels that a person should check.

    Examples:
      credibly sets predictions.parquet --average-size 5 --out sets.parquet
      credibly sets test.parquet --average-size 5 --guarantee 0.05 \\
        --fit-on held_out.parquet --out sets.csv
      credibly sets predictions.parquet --recall 0.9 --guarantee 0.1 --out sets.parquet
      credibly sets predictions.parquet --threshold 0.5,cat=0.3 --out sets.parquet
      credibly sets test.parquet --joint-coverage 0.9 --joint-from joint.json --out sets.parquet
      credibly sets predictions.parquet --cost miss=5,false-alarm=1,review=0.5 --out sets.csv
      credibly sets held_out.parquet --recall 0.9 --out sets.parquet --save rule.json
      credibly sets new.parquet --apply rule.json --out new_sets.parquet
      credibly sets held_out.parquet --recall 0.9 --out sets.csv --map map.json --save model.json

    Args:
        predictions: predictions file, or folder of shards
        out: file to write (.parquet or .csv; - prints CSV); with --engine spark, a folder
        average_size: maximum number of labels per row, on average
        guarantee: guarantee for size, recall or precision: expected, none, or the risk that it does
            not hold, such as 0.1 (default: expected; with --precision: 0.1)
        recall: minimum share of the present labels that sets contain, e.g. 0.9
        precision: minimum share of the selected labels that are right
        per: row: mean recall or precision over rows; label: one threshold per label, which holds
            for that label
        coverage: minimum share of rows whose set contains the one true label, e.g. 0.9
        best_f: one threshold per label with the best F score; X is beta, usually 1
        min_precision: with --best-f: minimum precision on the fitted rows
        top_k: return this many labels for every row, the most probable ones
        threshold: return labels with at least this probability; per label: 0.5,cat=0.3,dog=0.6
        cost: costs of a missed label, a false alarm and a review: miss=5,false-alarm=1,review=0.5
        joint_coverage: minimum share of rows whose set contains all true labels (uses joint
            probabilities)
        most_probable: return the most probable label set of each row (uses joint probabilities)
        joint_from: for --joint-coverage and --most-probable: held-out predictions to fit the joint
            model on, or the .json file that `joint fit` wrote
        apply: apply a rule that --save stored, without fitting
        save: store the fitted rule and its labels as JSON
        map: with --save: the map.json that made the probabilities. Map and rule are stored in one
            file for `credibly export` and `credibly serve --map`
        fit_on: predictions file to fit on
        fraction: share of PREDICTIONS to fit on, if --fit-on is not given
        seed: seed of the random part to fit on
    """

    predictions: str = option(positional=True)
    out: str = option(metavar="FILE", stdout=".csv")
    average_size: float | None = None
    guarantee: str | None = option(None, metavar="GUARANTEE", argument="delta")
    recall: float | None = option(None, argument="level")
    precision: float | None = option(None, argument="level")
    per: Literal["row", "label"] = "row"
    coverage: float | None = option(None, argument="level")
    best_f: float | None = option(None, argument="beta")
    min_precision: float | None = None
    top_k: int | None = option(None, argument="k")
    threshold: str | None = None
    cost: str | None = None
    joint_coverage: float | None = option(None, argument="level")
    most_probable: bool | None = None
    joint_from: File | None = None
    apply: File | None = None
    save: File | None = None
    map: File | None = None
    fit_on: File | None = None
    fraction: float = 0.5
    seed: int = option(0, between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.workflows import FitRows, write_sets

    with terminal.progress("rows", quiet=options.silent) as advance:
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
    terminal.tell(options, result.to_dict(), lambda: _show(result))


def _rule(options: Options) -> Decision | Pipeline:
    from credibly import decide
    from credibly.pipeline import Pipeline

    given = {name: getattr(options, name) for name in RULES}
    names = [name for name, value in given.items() if not (value is None or value is False)]
    if len(names) != 1:
        got = " and ".join(map(_flag, names)) or "none"
        raise input_error(f"give exactly one of {', '.join(map(_flag, RULES))}; got {got}.")
    (name,) = names
    for other, needed in NEEDS.items():
        if getattr(options, other) and not any(getattr(options, x) for x in needed):
            raise input_error(f"{_flag(other)} needs {' or '.join(map(_flag, needed))}; add it.")
    if options.save is not None and name in ("apply", "joint_coverage", "most_probable"):
        raise input_error(f"--save stores a rule that is fitted here; {_flag(name)} fits none.")
    guarantee = _guarantee(options.guarantee or ("0.1" if name == "precision" else "expected"))
    makers: dict[str, Callable[[Any], Decision | Pipeline]] = {
        "average_size": lambda size: decide.AverageSize(size, guarantee),
        "recall": lambda share: decide.Recall(share, guarantee, options.per),
        "precision": lambda share: decide.Precision(share, guarantee, options.per),
        "best_f": lambda beta: decide.BestF(beta, options.min_precision),
        "threshold": _threshold,
        "cost": _cost,
        "top_k": decide.TopK,
        "coverage": decide.Coverage,
        "apply": Pipeline.read,
    }
    return makers.get(name, lambda _: _joint_rule(options))(getattr(options, name))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _threshold(text: str) -> Decision:
    from credibly.decide import Threshold

    by_label = _numbers("--threshold", text)
    default = by_label.pop("", 0.5)
    return Threshold(by_label, default) if by_label else Threshold(default)


def _cost(text: str) -> Decision:
    from credibly.decide import Cost

    costs = {name.replace("-", "_"): value for name, value in _numbers("--cost", text).items()}
    if not {"miss"} <= costs.keys() <= {"miss", "false_alarm", "review"}:
        raise input_error(
            f"--cost must be like miss=5,false-alarm=1,review=0.5, at least miss; got {text!r}."
        )
    return Cost(**costs)


def _numbers(flag: str, text: str) -> dict[str, float]:
    """Return the numbers of ``0.5,cat=0.3`` by name; the name of a plain number is empty.

    Names with a comma are quoted as in CSV: ``0.5,"salt, pepper=0.3"``.
    """
    import csv

    found = {}
    for part in next(csv.reader([text], skipinitialspace=True), []):
        name, _, number = part.rpartition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            raise input_error(
                f"{flag} must be numbers, or NAME=NUMBER separated by commas; got {part!r}."
            ) from None
    return found


def _joint_rule(options: Options) -> Decision:
    from credibly.retrieve.joint.label_sets import JointCoverage, MostProbableSet
    from credibly.retrieve.joint.model_selection import joint_from

    others = (options.predictions, options.fit_on)
    joint = joint_from(str(options.joint_from), others=others, partial=options.partial)
    if options.joint_coverage is None:
        return MostProbableSet(joint)
    return JointCoverage(joint, options.joint_coverage)


def _guarantee(text: str) -> Any:
    """Return a guarantee for a decision; a number is the risk that it does not hold."""
    if text in ("expected", "none"):
        return None if text == "none" else text
    try:
        return ("probability", float(text))
    except ValueError:
        raise input_error(
            f"--guarantee must be expected, none or a risk such as 0.1; got {text!r}."
        ) from None


def _show(result: WrittenSets) -> None:
    from credibly.checks import listed
    from credibly.notebook import counted

    terminal.print_text(f"{result.decision.statement} {result.decision.assumption}".strip())
    numbers = {"rows": result.held_out_rows, **result.numbers}
    terminal.print_table("", ["rows not used for fitting", ""], list(numbers.items()))
    sizes = [(str(size), rows) for size, rows in result.sizes.items()]
    terminal.print_table("", ["labels in the set", "rows"], sizes, SHOWN)
    for sets, labels in ("every", result.always_selected), ("no", result.never_selected):
        if labels:
            terminal.print_text(
                f"Too few known rows for a threshold, so {sets} set has "
                f"{counted(len(labels), 'label')}: {listed(labels, str, 5)}."
            )
    if result.thresholds:
        limits = list(result.thresholds.items())
        terminal.print_table("", ["label", "threshold"], limits, SHOWN)
    terminal.print_text(f"Wrote {counted(result.rows, 'row')} to {result.out}.")
