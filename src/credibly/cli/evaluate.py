"""``credibly evaluate PREDICTIONS…``: accuracy and calibration, a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli.command import option

if TYPE_CHECKING:
    from credibly.retrieve import Joint
    from credibly.workflows.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure accuracy and calibration of predictions whose truth is known.

    mAP@y is over labels, mAP@x over rows; ACE, MCE and ECE are calibration errors in equal-width
    bins pooled over rows and labels: ACE and MCE over bins with at least --min-count entries, ECE
    over all. F1-top-4 and ECE-top-4 are of each row's four most probable labels, where there are
    more than four. NLL and Brier are proper scores, lower is better. Files of any size are read in
    batches.

    Examples:
      credibly evaluate predictions.parquet
      credibly evaluate raw.parquet calibrated.parquet --by-label --json
      credibly evaluate test.parquet --joint-from held-out.parquet
      credibly evaluate parts/ --engine spark
    """

    predictions: tuple[str, ...] = option(
        help="predictions files, or folders of parts", positional=True, metavar="PREDICTIONS"
    )
    by_label: bool = option(False, help="a table of every label too")
    intervals: bool = option(False, help="95 % intervals by resampling rows")
    bins: int = option(15, help="bins of the calibration errors", between=(1, 100_000))
    min_count: int = option(
        30, help="entries that a bin needs to count for ACE and MCE", between=(0, 2**53)
    )
    seed: int = option(0, help="seed of the resampling", between=(0, 2**63 - 1))
    joint_from: str | None = option(
        None,
        help="held-out predictions to fit joint probabilities on, or a .json of `joint fit`: also "
        "joint log score, subset accuracy, expected / real pairs and triples",
        metavar="FILE",
    )
    partial: bool = option(False, help="read a folder although some of its shards are missing")
    engine: str = option(
        "local", help="local: this machine; spark: a cluster", choices=("local", "spark")
    )
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="no progress bar")


def run(options: Options) -> int:
    from credibly.cli import tables
    from credibly.workflows.evaluation import evaluate_all

    quiet = options.quiet or options.json
    results = evaluate_all(
        options.predictions,
        progress=lambda name: tables.progress(name, total=1, quiet=quiet),
        bins=options.bins,
        min_count=options.min_count,
        intervals=options.intervals,
        seed=options.seed,
        partial=options.partial,
        joint=_joint(options),
        executor=options.engine,
    )
    if options.json:
        documents = [each.to_dict(by_label=options.by_label) for each in results]
        tables.print_json({"files": documents})
        return 0
    names = _short_names(results)
    tables.print_table("", ["", *names], _rows(results))
    if any(math.isnan(each.numbers.get("ACE", 0.0)) for each in results):
        tables.print_text(
            f"ACE and MCE need bins with at least {options.min_count} entries; lower --min-count."
        )
    for name, each in zip(names, results, strict=True):
        if options.by_label:
            columns = ["label", *each.by_label]
            cells = zip(each.labels, *(a.tolist() for a in each.by_label.values()), strict=True)
            tables.print_table(name, columns, list(cells))
        if each.joint is not None:
            rows = [
                [first, second, f"{expected:.1f}", real]
                for first, second, expected, real in each.joint.pairs_missed(10)
            ]
            columns = ["label", "and", "rows expected", "real"]
            tables.print_text(f"{name}: the pairs of labels farthest from what is expected")
            tables.print_table("", columns, rows)
        if without := each.labels_without_truth:
            listed = ", ".join(without[:5]) + (", …" if len(without) > 5 else "")
            tables.print_text(
                f"{each.path}: {len(without)} of {len(each.labels)} labels have no known row "
                f"and are left out of their means: {listed}"
            )
    return 0


def _joint(options: Options) -> Joint | None:
    from credibly.checks import InputError
    from credibly.workflows.joint_models import joint_from

    if options.joint_from is None:
        return None
    if options.joint_from in options.predictions:
        raise InputError(
            f"`--joint-from` must be other rows than those evaluated; got {options.joint_from}."
        )
    return joint_from(options.joint_from, partial=options.partial)


def _rows(results: list[Evaluation]) -> list[list[Any]]:
    from credibly.cli.tables import cell

    names = list(dict.fromkeys(name for each in results for name in each.numbers))
    rows: list[list[Any]] = [
        ["rows", *(each.rows for each in results)],
        ["labels", *(len(each.labels) for each in results)],
    ]
    for name in names:
        row: list[Any] = [name]
        for each in results:
            text = cell(each.numbers.get(name))
            if name in each.intervals:
                low, high = each.intervals[name]
                text += f" [{cell(low)}, {cell(high)}]"
            row.append(text)
        rows.append(row)
    return rows


def _short_names(results: list[Evaluation]) -> list[str]:
    """Return file names with as many folders above them as it takes to tell the files apart."""
    from pathlib import Path

    parts = [Path(each.path).parts for each in results]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{each.path} ({place})" for place, each in enumerate(results, start=1)]
