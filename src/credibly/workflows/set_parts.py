"""Label sets past one machine: fitted on drawn rows here, written piece by piece by workers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from credibly.checks import InputError
from credibly.decide import Decision
from credibly.engines import Engine
from credibly.predictions import Dataset
from credibly.predictions.completeness import shard_name
from credibly.predictions.shard import BATCH_ROWS, Piece, PieceReader
from credibly.targets import Targets
from credibly.types import Array
from credibly.workflows.fit_rows import FitRows, RowChoice
from credibly.workflows.label_sets import (
    SetTally,
    WrittenSets,
    sets_file,
    write_batch,
    written_sets,
)
from credibly.workflows.parts import add_all, open_parts

MOST_FITTED = 2**26
"""Probabilities that a decision is fitted on at most: 0.3 GB on the driver."""


def write_set_parts(
    path: str | os.PathLike[str],
    decision: Decision,
    out: Path,
    fit_rows: FitRows,
    *,
    partial: bool = False,
    engine: str = "spark",
    session: object = None,
    batch_rows: int = BATCH_ROWS,
) -> WrittenSets:
    """Fit a decision and write the label sets of predictions of any size, as ``write_sets`` does.

    The rows to fit on are those of one machine, as long as they hold at most ``MOST_FITTED``
    probabilities. With more, fewer rows are drawn: a guarantee holds for the rows that were drawn.

    Args:
        path: a predictions file, or a folder of parts.
        decision: the rule.
        out: the folder to write, which every worker sees under the same path.
        fit_rows: which rows to fit on.
        partial: whether a folder may lack shards.
        engine, session, batch_rows: as for ``cr.evaluate``.
    """
    dataset, worker = open_parts(path, out, engine, session, partial=partial, batch_rows=batch_rows)
    if dataset.top:
        raise InputError(
            f"{path} holds the most probable labels of each row; write its sets on this machine, "
            "without `--engine spark`: batches of it are read one after the other."
        )
    worker.check_ids(dataset)
    decision = decision.for_labels(dataset.labels)
    rows: RowChoice | None = None
    if decision.fitted_on == "nothing":
        decision = decision.fit(None)
    else:
        most = max(1, MOST_FITTED // len(dataset.labels))
        rows = fit_rows.choose(dataset.num_rows, f"rows of {path}", most)
        decision = _fitted(decision, dataset, worker, rows)
    out.mkdir(parents=True, exist_ok=True)
    tally, count = SetTally(), len(dataset.pieces())

    def work(piece: Piece, reader: PieceReader) -> dict[str, Array]:
        mine = SetTally()
        with sets_file(out / shard_name(piece.index, count), decision) as file:
            for first_row, batch in reader.batches(piece):
                held = np.ones(len(batch), dtype=bool)
                if rows is not None:
                    held = ~rows.mask_of(first_row, len(batch))
                write_batch(file, decision, batch, held, mine)
        return mine.state()

    add_all(tally, worker, dataset, work)
    return written_sets(out, decision, dataset.labels, dataset.num_rows, tally)


def _fitted(decision: Decision, dataset: Dataset, engine: Engine, rows: RowChoice) -> Decision:
    """Return the decision, fitted on the drawn rows, which workers send here."""
    needs_truth = decision.fitted_on == "truth"
    if needs_truth and not dataset.has_targets:
        raise InputError(
            f"{dataset.path} must have the truth, columns 'y:<label>', because this rule is fitted "
            "on it; it has none."
        )

    def drawn(piece: Piece, reader: PieceReader) -> dict[str, Array]:
        found: dict[str, list[Array]] = {"probabilities": [], "targets": []}
        for first_row, batch in reader.batches(piece):
            mask = rows.mask_of(first_row, len(batch))
            found["probabilities"].append(batch.probabilities[mask])
            if needs_truth:
                assert batch.targets is not None
                found["targets"].append(batch.targets[mask])
        return {name: np.concatenate(each) for name, each in found.items() if each}

    states = engine.run(dataset, drawn)
    probabilities = np.concatenate([state["probabilities"] for state in states])
    if not needs_truth:
        return decision.fit(probabilities)
    targets = np.concatenate([state["targets"] for state in states])
    return decision.fit(probabilities, Targets(targets))
