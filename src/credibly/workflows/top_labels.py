"""Evaluate and calibrate files that hold the most probable labels of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly.calibrate.auto import fit_by_name
from credibly.checks import InputError
from credibly.engines import Engine
from credibly.predictions import Dataset, Predictions, Writer
from credibly.runtime import sigmoid
from credibly.targets import Targets
from credibly.types import Array
from credibly.workflows.tallies import TopTally

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator

PLACES = (1, 3, 5)
"""Numbers of most probable labels that are reported."""

FIT_ENTRIES = 2_000_000
"""Entries that a calibrator is fitted on at most; further rows are left out evenly."""


def top_numbers(
    dataset: Dataset,
    *,
    bins: int,
    min_count: int,
    weights: Array | None = None,
    engine: Engine,
    advance: Callable[[float], None] = lambda share: None,
) -> dict[str, float]:
    """Return the metrics of a file with the most probable labels, in one pass over its rows.

    Ranking: precision, nDCG and recall at 1, 3 and 5 (and propensity-scored, where ``weights`` are
    given). Calibration and proper scores are over the labels that rows hold; their names say so.
    """
    if not dataset.has_targets:
        raise InputError(
            f"{dataset.path} must have the truth to be evaluated, a column 'y'; it has none."
        )
    tally = engine.tally(dataset, TopTally(max(PLACES), bins, weights), advance=advance)
    held = tally.held
    if held.known == 0:
        raise InputError(f"{dataset.path} must have some truth to be evaluated; all is unknown.")
    numbers: dict[str, float] = {}
    for prefix, each in tally.rankings.items():
        figures = {"precision": each.precision(), "nDCG": each.ndcg(), "recall": each.recall()}
        for name, values in figures.items():
            numbers |= {f"{prefix}{name}@{k}": float(values[k - 1]) for k in PLACES}
    over = held.summary(np.full(1, np.nan), min_count)
    kept = ("ACE", "MCE", "ECE", "NLL", "Brier")
    return numbers | {f"{name}, held labels": over[name] for name in kept}


def holds_top_labels(path: str | Path) -> bool:
    """Return whether ``path`` is a predictions file with the most probable labels of each row.

    Example:
        >>> holds_top_labels("scores.npz")
        False
    """
    path = Path(path)
    parts = path.is_dir() and any(path.glob("*.parquet"))
    if not (parts or (path.suffix == ".parquet" and path.is_file())):
        return False
    import pyarrow.parquet as pq

    first = min(path.glob("*.parquet")) if parts else path
    try:
        names = pq.read_schema(first).names
    except (OSError, ValueError):
        return False  # damaged: whoever reads it says how
    return {"top", "p"} <= set(names)


def calibrate_top_file(
    path: str | Path, out: str | Path, *, method: str = "affine", fit_on: str | Path | None = None
) -> Calibrator:
    """Calibrate the probabilities of a file with the most probable labels; write another file.

    The calibrator, one map for all labels, is fitted on the labels that the rows of ``fit_on``
    hold; without it, on those of every second row of the file.

    Args:
        path: the predictions to calibrate.
        out: the file to write.
        method: name of a calibrator that has one map for all labels.
        fit_on: predictions of other rows by the same model, with truth.

    Raises:
        InputError: if there is no truth to fit on, or the calibrator has a map per label.
    """
    dataset = Dataset(path)
    source = dataset if fit_on is None else Dataset(fit_on)
    calibrator = fit_top_calibrator(source.batches(), method, str(source.path), fit_on is None)
    with Writer(out, dataset.labels) as writer:
        for batch in dataset.batches():
            writer.metadata = {**batch.metadata, "calibrator": calibrator.state()}
            odds = log_odds(batch.probabilities)
            writer.append(batch.with_probabilities(sigmoid(calibrator.transform(odds))))
    return calibrator


def fit_top_calibrator(
    batches: Iterator[Predictions], method: str, where: str, every_second: bool = False
) -> Calibrator:
    """Return a calibrator fitted on the labels that rows hold, as one column of entries."""
    odds: list[Array] = []
    truth: list[Array] = []
    for batch in batches:
        if batch.targets is None:
            raise InputError(f"{where} must have the truth to fit on, a column 'y'; it has none.")
        chosen = slice(None, None, 2 if every_second else 1)
        hits = batch.targets[chosen]
        known = hits >= 0
        odds.append(log_odds(batch.probabilities[chosen])[known])
        truth.append(hits[known])
    column, hits = np.concatenate(odds)[:, None], np.concatenate(truth)[:, None]
    step = max(1, len(column) // FIT_ENTRIES)
    return fit_by_name(method, column[::step], Targets(hits[::step]))


def log_odds(probabilities: Array) -> Array:
    """Return the log-odds of probabilities, float64; ±inf for 1 and 0."""
    from scipy.special import logit

    return logit(probabilities.astype(np.float64))
