"""``credibly evaluate PREDICTIONS…``: accuracy and calibration, a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, option
from credibly.cli.terminal import cell

if TYPE_CHECKING:
    from credibly.workflows.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Measure accuracy and calibration of predictions.

    The file must hold the truth. NLL is the log loss. ACE is the calibration error: the mean gap
    between probability and frequency, over bins of equal width with at least --min-count entries.
    mAP@y is the mean average precision over labels. For F1, a label is returned if its probability
    is at least 0.5. --papers adds mAP@x (over rows), MCE and ECE (other calibration errors), Brier
    score, sizes, AUROC, F1-top-4 and ECE-top-4 (on the four most probable labels of each row).
    If some rows have no label, IN accuracy and OUT MMC are added.

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
    from credibly.checks import listed
    from credibly.retrieve.joint.model_selection import joint_from
    from credibly.workflows.evaluation import evaluate_all

    joint = None
    if options.joint_from is not None:
        others = options.predictions
        joint = joint_from(options.joint_from, others=others, partial=options.partial)
    results = evaluate_all(
        options.predictions,
        progress=lambda name: terminal.progress(name, total=1, quiet=options.silent),
        bins=options.bins,
        min_count=options.min_count,
        intervals=options.intervals,
        seed=options.seed,
        partial=options.partial,
        joint=joint,
        executor=options.engine,
    )
    if options.json:
        documents = [each.to_dict(by_label=options.by_label) for each in results]
        return terminal.print_json({"files": documents})
    names = _short_names([each.path for each in results])
    terminal.print_table("", ["", *names], _rows(results, options.papers))
    if any(math.isnan(each.numbers.get("ACE", 0.0)) for each in results):
        terminal.print_text(
            f"ACE and MCE need bins with at least {options.min_count} entries; lower --min-count."
        )
    for name, each in zip(names, results, strict=True):
        if options.by_label and not each.by_label:
            terminal.print_text(f"{name}: no table, with only the most probable labels of rows.")
        elif options.by_label:
            terminal.print_table(name, ["label", *each.by_label], _by_label(each))
        if each.joint is not None:
            title = f"{name}: pairs of labels whose expected and real counts differ most"
            rows = each.joint.pairs_missed(10)
            terminal.print_table(title, ["label", "and", "rows expected", "real"], rows)
        if without := each.labels_without_truth:
            terminal.print_text(
                f"{each.path}: {len(without)} of {len(each.labels)} labels have no known truth, "
                f"so no mean counts them: {listed(without, str, 5)}"
            )
    return None


def _interval(value: object, ends: Sequence[float] | None) -> str:
    limits = "" if ends is None else f" [{cell(ends[0])}, {cell(ends[1])}]"
    return cell(value) + (limits if cell(value) != "–" else "")


def _by_label(result: Evaluation) -> list[list[object]]:
    """Return one row per label, their mean, and one of the entries of all labels together."""
    import numpy as np

    rows: list[list[object]] = [[name] for name in result.labels]
    means: list[object] = ["mean over labels"]
    micro: list[object] = ["all entries"]
    for name, column in result.by_label.items():
        ends = zip(*result.label_intervals.get(name, ()), strict=True)
        for row, value in zip(rows, column.tolist(), strict=True):
            row.append(_interval(value, next(ends, None)))
        finite = column[np.isfinite(column)]
        mean = finite.mean() if len(finite) else None
        means.append(int(column.sum()) if name == "known" else mean)
        micro.append(result.micro.get(name))
    return [*rows, means, micro] if result.by_label else rows


def _rows(results: Sequence[Evaluation], papers: bool) -> list[list[object]]:
    shown = [each.shown(papers=papers) for each in results]
    names = dict.fromkeys(name for each in shown for name in each)
    rows: list[list[object]] = [
        ["rows", *(each.rows for each in results)],
        ["labels", *(len(each.labels) for each in results)],
    ]
    for name in names:
        values = [_interval(x.numbers.get(name), x.intervals.get(name)) for x in results]
        rows.append([name, *values])
    return rows


def _short_names(paths: Sequence[str]) -> list[str]:
    """Return file names with as many folders above them as it takes to tell the files apart."""
    from pathlib import Path

    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({place})" for place, path in enumerate(paths, start=1)]
