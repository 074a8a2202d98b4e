"""Files of other programs: npz, CSV and Parquet, of scores or probabilities."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from predictions_instances import ODD_LABELS, random_record

from credibly import InputError, Predictions
from credibly.losses import SPA
from credibly.predictions import Layout
from credibly.workflows import calibrate_file


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def _columns(record: Predictions, prefix: str, values: np.ndarray) -> dict[str, list[object]]:
    columns = zip(record.labels, values.T.tolist(), strict=True)
    return {prefix + name: column for name, column in columns}


def _without_metadata(record: Predictions) -> Predictions:
    return Predictions(
        record.probabilities, record.labels, record.ids, record.targets, record.scores
    )


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_the_same_cells_from_every_kind_of_file(ending, tmp_path):
    record = random_record(23, scores=False)
    assert record.targets is not None
    path = tmp_path / f"foreign.{ending}"
    truth = np.where(record.targets == -1, None, record.targets.astype(object))
    columns = {
        "id": record.ids.tolist(),
        **_columns(record, "y:", truth),
        **_columns(record, "p:", record.probabilities.astype(np.float64)),
    }
    if ending == "csv":
        cells = zip(*columns.values(), strict=True)
        rows = [["" if cell is None else cell for cell in row] for row in cells]
        write_csv(path, list(columns), rows)
        read = Predictions.from_values(path, "probabilities")
    elif ending == "parquet":
        pq.write_table(pa.table(columns), path)
        read = Predictions.from_values(path, "probabilities")
    else:
        np.savez(
            path,
            probabilities=record.probabilities,
            targets=record.targets,
            labels=np.array(record.labels),
            ids=record.ids.astype(str),
        )
        read = Predictions.from_values(path, "probabilities")
    assert _without_metadata(read) == _without_metadata(record)


def test_plain_columns_are_probabilities_or_with_a_loss_scores(tmp_path):
    header = ["id", "dog", "dining table", "y:dog", "y:dining table"]
    rows = [["007", 0.25, 0.5, 1, ""], ["8", 1, 0, 0, 1]]
    write_csv(tmp_path / "p.csv", header, rows)
    read = Predictions.from_values(tmp_path / "p.csv", "probabilities")
    assert read.labels == ["dog", "dining table"]
    assert read.ids.tolist() == ["007", "8"]
    assert read.targets is not None
    np.testing.assert_array_equal(read.targets, [[1, -1], [0, 1]])
    loss = SPA()
    scored = Predictions.from_values(tmp_path / "p.csv", "logits", loss=loss, certain=True)
    expected = loss.probabilities(torch.from_numpy(read.probabilities))
    np.testing.assert_array_equal(scored.probabilities, expected.numpy())
    np.testing.assert_array_equal(scored.scores, read.probabilities)
    chosen = Predictions.from_values(
        tmp_path / "p.csv", "probabilities", layout=Layout(labels=["dining table"])
    )
    np.testing.assert_array_equal(chosen.probabilities, [[0.5], [0.0]])


def test_scores_go_through_the_loss_they_were_trained_with(tmp_path):
    scores = np.linspace(-3, 3, 12).reshape(4, 3)
    np.savez(tmp_path / "s.npz", scores=scores, targets=np.array([0, 2, -1, 1]))
    with pytest.raises(InputError, match=r"s.npz: holds scores by name, not probabilities"):
        Predictions.from_values(tmp_path / "s.npz", "probabilities")
    read = Predictions.from_values(tmp_path / "s.npz", "logits", loss=SPA())
    assert read.labels == ["0", "1", "2"]
    assert read.ids.tolist() == ["0", "1", "2", "3"]
    expected = SPA().probabilities(torch.tensor(scores, dtype=torch.float32))
    np.testing.assert_array_equal(read.probabilities, expected.numpy())
    assert read.targets is not None
    np.testing.assert_array_equal(read.targets[2], [-1, -1, -1])


def test_a_split_chooses_the_rows_to_calibrate_on(tmp_path):
    rng = np.random.default_rng(0)
    scores, split = rng.normal(size=(60, 1)), np.arange(60) % 3
    targets = (rng.random((60, 1)) < 0.5).astype(int)
    np.savez(tmp_path / "s.npz", scores=scores, targets=targets, split=split)
    rows = zip(split, scores[:, 0], targets[:, 0], strict=True)
    write_csv(tmp_path / "s.csv", ["split", "s:dog", "y:dog"], [list(row) for row in rows])
    for name in ("s.npz", "s.csv"):
        found = calibrate_file(tmp_path / name, "bce", method="temperature")
        assert found.fitted.tolist() == np.flatnonzero(split == 2).tolist()
        assert found.held_out.tolist() == np.flatnonzero(split == 1).tolist()


def test_odd_labels_survive_a_csv_file(tmp_path):
    write_csv(tmp_path / "p.csv", ODD_LABELS, [[0.5] * len(ODD_LABELS)])
    # "p:y" has the prefix of a probability, so plain columns have to be named then.
    assert Predictions.from_values(tmp_path / "p.csv", "probabilities").labels == ["y"]
    write_csv(tmp_path / "q.csv", [f"p:{n}" for n in ODD_LABELS], [[0.5] * len(ODD_LABELS)])
    assert Predictions.from_values(tmp_path / "q.csv", "probabilities").labels == ODD_LABELS
