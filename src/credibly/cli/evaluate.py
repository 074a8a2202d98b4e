"""``credibly evaluate PREDICTIONS…``: accuracy and calibration, a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, input_error, option
from credibly.cli.terminal import cell

if TYPE_CHECKING:
    from credibly.retrieve import Joint
    from credibly.types import Array
    from credibly.workflows.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Measure accuracy and calibration of predictions with known truth.

    mAP@y is the mean average precision over labels. ACE is the calibration error over bins of equal
    width with at least --min-count entries. NLL is the log loss. Micro and macro F1 count a label
    as returned if its probability is at least 0.5. --papers adds mAP@x (over rows), MCE and ECE
    (calibration errors), Brier score, sizes, AUROC, F1-top-4 and ECE-top-4 (the four most probable
    labels of each row). If some rows have no label, IN accuracy and OUT MMC are added, too.
    --by-label prints precision, recall, F1 and calibration of every label. Files of any size are
    read in batches.

    Examples:
      credibly evaluate predictions.parquet
      credibly evaluate predictions.parquet --papers --intervals
      credibly evaluate raw.parquet calibrated.parquet --by-label --json
      credibly evaluate test.parquet --joint-from held-out.parquet
      credibly evaluate parts/ --engine spark

    Args:
        predictions: predictions files, or folders of shards
        by_label: add a table of all labels; with --intervals, also their intervals
        papers: add all other metrics, among them those of the papers
        intervals: add 95 % intervals (bootstrap over rows)
        bins: number of bins of the calibration errors
        min_count: minimum number of entries of a bin in ACE and MCE
        seed: seed of the resampling
        joint_from: add joint log score, subset accuracy, and expected over real pairs and triples.
            FILE holds held-out predictions to fit the joint model on, or the .json file that `joint
            fit` wrote
    """

    predictions: tuple[str, ...] = option(positional=True)
    by_label: bool = False
    papers: bool = False
    intervals: bool = False
    bins: int = option(15, between=(1, 100_000))
    min_count: int = option(30, between=(0, 2**53))
    seed: int = option(0, between=(0, 2**63 - 1))
    joint_from: File | None = None


def run(options: Options) -> None:
    from credibly.workflows.evaluation import evaluate_all

    quiet = options.quiet or options.json
    results = evaluate_all(
        options.predictions,
        progress=lambda name: terminal.progress(name, total=1, quiet=quiet),
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
        terminal.print_json({"files": documents})
        return
    names = _short_names(results)
    terminal.print_table("", ["", *names], _rows(results, options.papers))
    if any(math.isnan(each.numbers.get("ACE", 0.0)) for each in results):
        terminal.print_text(
            f"ACE and MCE need bins with at least {options.min_count} entries; lower --min-count."
        )
    for name, each in zip(names, results, strict=True):
        if options.by_label:
            terminal.print_table(name, ["label", *each.by_label], _report(each))
        if each.joint is not None:
            rows = [
                [first, second, f"{expected:.1f}", real]
                for first, second, expected, real in each.joint.pairs_missed(10)
            ]
            columns = ["label", "and", "rows expected", "real"]
            terminal.print_text(
                f"{name}: pairs of labels with the largest difference between expected and real "
                "counts"
            )
            terminal.print_table("", columns, rows)
        if without := each.labels_without_truth:
            listed = ", ".join(without[:5]) + (", …" if len(without) > 5 else "")
            terminal.print_text(
                f"{each.path}: {len(without)} of {len(each.labels)} labels have no known row "
                f"and are left out of their means: {listed}"
            )


def _joint(options: Options) -> Joint | None:
    from credibly.retrieve.joint.model_selection import joint_from

    if options.joint_from is None:
        return None
    if options.joint_from in options.predictions:
        raise input_error(
            "`--joint-from` must hold other rows than the evaluated file; got "
            f"{options.joint_from}."
        )
    return joint_from(options.joint_from, partial=options.partial)


def _report(result: Evaluation) -> list[list[object]]:
    """Return one row per label, their mean, and one of the entries of all labels together."""
    import numpy as np

    def shown(name: str, column: Array) -> list[object]:
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


def _rows(results: list[Evaluation], papers: bool) -> list[list[object]]:
    shown = [each.shown(papers=papers) for each in results]
    names = list(dict.fromkeys(name for each in shown for name in each))
    rows: list[list[object]] = [
        ["rows", *(each.rows for each in results)],
        ["labels", *(len(each.labels) for each in results)],
    ]
    for name in names:
        row: list[object] = [name]
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
