"""Values from elsewhere: the same predictions from every kind of source, and what is refused."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import expit

from credibly import InputError, Predictions
from credibly.losses import Asymmetric
from credibly.predictions import Layout

LABELS = ["cat", "dog", "big, cow"]
IDS = [f"00{row}" for row in range(40)]
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (40, 3)).astype(np.float32)
TRUTH = (RNG.random((40, 3)) < expit(LOGITS)).astype(np.int8)
TRUTH[::5] = 0
VALUES = {"logits": LOGITS, "probabilities": expit(LOGITS)}
NAMED = Layout(labels=LABELS)


def frame(values: np.ndarray, name: str = "id") -> pd.DataFrame:
    return pd.DataFrame({name: IDS, **dict(zip(LABELS, values.T, strict=True))})


def npy(path, values):
    np.save(path / "x.npy", values)
    return path / "x.npy", NAMED


def pt(path, values):
    torch.save(torch.from_numpy(values), path / "x.pt")
    return path / "x.pt", NAMED


def pt_dict(path, values):
    kind = "logits" if values is LOGITS else "probabilities"
    torch.save({kind: torch.from_numpy(values), "labels": LABELS, "ids": IDS}, path / "x.pth")
    return path / "x.pth", None


def npz(path, values):
    kind = "scores" if values is LOGITS else "probabilities"
    arrays = {kind: values, "labels": np.array(LABELS), "ids": np.array(IDS)}
    np.savez(path / "x.npz", **arrays)  # pyright: ignore[reportArgumentType]
    return path / "x.npz", None


def kaggle(path, values):
    frame(values, "image_id").to_csv(path / "x.csv", index=False)
    return path / "x.csv", None


def parquet(path, values):
    pq.write_table(pa.table(frame(values)), path / "x.parquet")
    return path / "x.parquet", None


def arrow(path, values):
    pyarrow.feather.write_feather(pa.table(frame(values)), str(path / "x.feather"))
    return path / "x.feather", None


FILES = {each.__name__: each for each in (npy, pt, pt_dict, npz, kaggle, parquet, arrow)}
MEMORY = {
    "array": lambda values: values,
    "tensor": torch.from_numpy,
    "forest": lambda values: [np.stack([1 - p, p], axis=1) for p in values.T],
    "boosters": lambda values: list(values.T),
    "pandas": frame,
    "pandas index": lambda values: frame(values).set_index("id"),
    "arrow": lambda values: pa.table(frame(values)),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_every_file_gives_the_same_predictions(make, kind, tmp_path):
    path, layout = make(tmp_path, VALUES[kind])
    loss = "bce" if kind == "logits" else None
    read = Predictions.from_values(path, kind, loss=loss, layout=layout)
    np.testing.assert_allclose(read.probabilities, expit(LOGITS), atol=2e-7)
    assert read.labels == LABELS
    if layout is None:
        assert read.ids.tolist() == IDS  # with their leading zeros
    assert (read.scores is None) == (kind == "probabilities")


@pytest.mark.parametrize("make", MEMORY.values(), ids=MEMORY)
def test_every_object_gives_the_same_predictions(make):
    layout = None if "table" in str(make) or make is frame else NAMED
    read = Predictions.from_values(make(VALUES["probabilities"]), "probabilities", layout=layout)
    np.testing.assert_allclose(read.probabilities, expit(LOGITS), atol=2e-7)
    assert read.labels == LABELS


def test_the_link_of_the_loss_is_applied():
    read = Predictions.from_values(LOGITS, "logits", loss="asl", layout=NAMED)
    expected = Asymmetric().probabilities(torch.from_numpy(LOGITS)).numpy()
    np.testing.assert_allclose(read.probabilities, expected, atol=1e-6)


def truth_lists(path, separator=";"):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "labels"])
        for name, row in reversed(list(zip(IDS, TRUTH, strict=True))):
            writer.writerow([name + ".jpg", separator.join(np.array(LABELS)[row == 1])])
    return path


def truth_columns(path):
    order = [2, 0, 1]
    table = pd.DataFrame({"id": IDS, **{LABELS[k]: TRUTH[:, k] for k in order}})
    table.sample(frac=1, random_state=0).to_csv(path, index=False)
    return path


def test_truth_is_matched_by_id_and_label_name(tmp_path):
    path = parquet(tmp_path, VALUES["probabilities"])[0]
    lists = truth_lists(tmp_path / "lists.csv")
    columns = truth_columns(tmp_path / "columns.csv")
    np.savez(
        tmp_path / "t.npz", targets=TRUTH[::-1, ::-1], labels=np.array(LABELS[::-1]), ids=IDS[::-1]
    )
    for truth in (lists, columns, tmp_path / "t.npz", pd.read_csv(columns, dtype={"id": str})):
        layout = Layout(suffix=".jpg")
        read = Predictions.from_values(path, "probabilities", truth=truth, layout=layout)
        np.testing.assert_array_equal(read.targets, TRUTH)


def test_rows_without_ids_are_matched_by_order(tmp_path):
    np.save(tmp_path / "y.npy", TRUTH)
    read = Predictions.from_values(
        LOGITS, "logits", loss="bce", truth=tmp_path / "y.npy", layout=NAMED
    )
    np.testing.assert_array_equal(read.targets, TRUTH)


BAD = {
    "logits as probabilities": (
        {"source": LOGITS, "values": "probabilities"},
        r"probabilities must lie in \[0, 1\]",
    ),
    "probabilities as logits": (
        {"source": VALUES["probabilities"], "values": "logits", "loss": "bce"},
        r"all values lie in \[0, 1\].*`values=\"probabilities\"`.*`certain=True`",
    ),
    "no declaration": ({"source": LOGITS, "values": "scores"}, "`values` must be one of 'logits'"),
    "no loss": ({"source": LOGITS, "values": "logits"}, r"logits need the `loss`.*XGBoost"),
    "a loss of probabilities": (
        {"source": VALUES["probabilities"], "values": "probabilities", "loss": "bce"},
        "`loss` is for logits",
    ),
    "one dimension": ({"source": LOGITS[0], "values": "logits", "loss": "bce"}, "of shape"),
    "one class": (
        {"source": [LOGITS[:, :2], LOGITS[:, :1]], "values": "probabilities"},
        r"label 1 has \(40, 1\)",
    ),
    "uneven list": ({"source": [LOGITS[0], LOGITS[0, :2]], "values": "probabilities"}, "one shape"),
    "another type": ({"source": {"a": 1}, "values": "logits", "loss": "bce"}, "got dict"),
    "too few names": (
        {"source": LOGITS, "values": "logits", "loss": "bce", "layout": Layout(labels=["a", "b"])},
        "`labels` must name every column, 3; got 2",
    ),
    "duplicate ids": (
        {"source": LOGITS, "values": "logits", "loss": "bce", "ids": ["a"] * 40},
        "ids must be different; 'a'",
    ),
    "no such id column": (
        {
            "source": frame(LOGITS),
            "values": "logits",
            "loss": "bce",
            "layout": Layout(id_column="ix"),
        },
        "there must be a column 'ix'",
    ),
    "truth of fewer rows": (
        {"source": LOGITS, "values": "logits", "loss": "bce", "truth": TRUTH[:9]},
        "as many rows as the values, 40.*got 9",
    ),
    "truth of other rows": (
        {
            "source": frame(LOGITS),
            "values": "logits",
            "loss": "bce",
            "truth": frame(TRUTH.astype(float))[1:],
        },
        "1 of 40 ids have none: '000'",
    ),
    "truth without a label": (
        {
            "source": frame(LOGITS),
            "values": "logits",
            "loss": "bce",
            "truth": frame(TRUTH).iloc[:, :3],
        },
        "the truth must have every label; 'big, cow' is missing",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_contradictions_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Predictions.from_values(**arguments)


def test_unknown_names_in_lists_are_refused(tmp_path):
    path = parquet(tmp_path, VALUES["probabilities"])[0]
    pd.DataFrame({"id": IDS, "tags": ["dog dgo"] * 40}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"row 0, column 'tags'.*got 'dgo'. Did you mean 'dog'"):
        Predictions.from_values(path, "probabilities", truth=tmp_path / "t.csv")


def test_certain_logits_in_the_unit_interval_are_accepted():
    values = np.full((3, 2), 0.5)
    read = Predictions.from_values(values, "logits", loss="bce", certain=True)
    np.testing.assert_allclose(read.probabilities, expit(0.5))


class Code:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize("content", [b"not a file", b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("ending", ["npy", "pt", "feather", "arrow"])
def test_damaged_files_are_named(ending, content, tmp_path):
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"x.{ending}"):
        Predictions.from_values(path, "logits", loss="bce")


def test_nothing_in_a_file_of_tensors_is_executed(tmp_path, capsys):
    torch.save({"scores": Code()}, tmp_path / "x.pt")
    with pytest.raises(InputError, match="nothing that runs code"):
        Predictions.from_values(tmp_path / "x.pt", "logits", loss="bce")
    assert "executed" not in capsys.readouterr().out
