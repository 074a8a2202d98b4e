"""``credibly evaluate PREDICTIONS…``: accuracy and calibration, a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli import tables
from credibly.cli.command import Scanned, option
from credibly.cli.tables import cell

if TYPE_CHECKING:
    from credibly.retrieve import Joint
    from credibly.workflows.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Measure accuracy and calibration of predictions whose truth is known.

    mAP@y is the mean average precision over labels, ACE the calibration error in equal-width bins
    with at least --min-count entries, NLL the log loss. Micro and macro F1 return a label from
    probability 0.5 on. --papers adds mAP@x (over rows), MCE and ECE (calibration errors), Brier
    score, sizes, AUROC, F1-top-4 and ECE-top-4 (each row's four most probable labels), and with
    rows that have no label IN accuracy and OUT MMC. --by-label prints precision, recall, F1 and
    calibration of every label, with --intervals also their intervals. Files of any size are read
    in batches.

    Examples:
      credibly evaluate predictions.parquet
      credibly evaluate predictions.parquet --papers --intervals
      credibly evaluate raw.parquet calibrated.parquet --by-label --json
      credibly evaluate test.parquet --joint-from held-out.parquet
      credibly evaluate parts/ --engine spark
    """

    predictions: tuple[str, ...] = option(
        help="predictions files, or folders of shards", positional=True, metavar="PREDICTIONS"
    )
    by_label: bool = option(False, help="also a table of every label")
    papers: bool = option(False, help="also the metrics of the papers, and all others")
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


def run(options: Options) -> None:
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
        return
    names = _short_names(results)
    tables.print_table("", ["", *names], _rows(results, options.papers))
    if any(math.isnan(each.numbers.get("ACE", 0.0)) for each in results):
        tables.print_text(
            f"ACE and MCE need bins with at least {options.min_count} entries; lower --min-count."
        )
    for name, each in zip(names, results, strict=True):
        if options.by_label:
            tables.print_table(name, ["label", *each.by_label], _report(each))
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


def _joint(options: Options) -> Joint | None:
    from credibly.checks import InputError
    from credibly.retrieve.joint.model_selection import joint_from

    if options.joint_from is None:
        return None
    if options.joint_from in options.predictions:
        raise InputError(
            f"`--joint-from` must be other rows than those evaluated; got {options.joint_from}."
        )
    return joint_from(options.joint_from, partial=options.partial)


def _report(result: Evaluation) -> list[list[Any]]:
    """Return one row per label, their mean, and one of the entries of all labels together."""
    import numpy as np

    def shown(name: str, column: Any) -> list[Any]:
        if name not in result.label_intervals:
            return column.tolist()
        limits = zip(column.tolist(), *result.label_intervals[name], strict=True)
        return [
            "–" if math.isnan(at) else f"{cell(at)} [{cell(low)}, {cell(high)}]"
            for at, low, high in limits
        ]

    columns = [shown(name, column) for name, column in result.by_label.items()]
    rows = [list(row) for row in zip(result.labels, *columns, strict=True)]
    micro = [result.micro.get(name) for name in result.by_label]
    means = [np.nanmean(a) if np.isfinite(a).any() else np.nan for a in result.by_label.values()]
    means[0] = int(result.by_label["known"].sum())
    return [*rows, ["mean over labels", *means], ["all entries", *micro]] if columns else rows


def _rows(results: list[Evaluation], papers: bool) -> list[list[Any]]:
    shown = [each.shown(papers=papers) for each in results]
    names = list(dict.fromkeys(name for each in shown for name in each))
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
