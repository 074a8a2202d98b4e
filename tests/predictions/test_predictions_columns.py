"""Files whose columns and arrays have names of their own are read as those with the usual names."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

import credibly as cr
from credibly.cli import main
from credibly.predictions import Layout

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(60, 3)).astype(np.float32)
TRUTH = (RNG.random(SCORES.shape) < 1 / (1 + np.exp(-SCORES))).astype(np.int8)
LABELS = ["cat", "dog", "a*b"]
IDS = [f"{row:03d}" for row in range(60)]


def write(path, table):
    writers = {".csv": csv.write_csv, ".parquet": pq.write_table, ".feather": feather.write_feather}
    writers[path.suffix](pa.table(table), path)
    return path


def columns(values, truth, labels=LABELS, **more):
    table = {"id": IDS, **more}
    for place, label in enumerate(labels):
        table[values.replace("*", label, 1)] = SCORES[:, place]
        table[truth.replace("*", label, 1)] = TRUTH[:, place]
    return table


PATTERNS = [
    ("pred_*", "true_*"),
    ("*.score", "*.y"),
    ("s(*)", "*"),
    ("*", "gold *"),
    ("s:*", "t:*"),
]


@pytest.mark.parametrize(("values", "truth"), PATTERNS)
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_patterns_name_the_columns(tmp_path, values, truth, ending):
    path = write(tmp_path / f"x{ending}", columns(values, truth, split=[1] * 60))
    layout = Layout(value_columns=values, truth_columns=truth)
    found = cr.Predictions.from_values(path, "logits", loss="bce", layout=layout)
    assert found.labels == LABELS
    assert found.ids.tolist() == IDS
    np.testing.assert_allclose(found.scores, SCORES, rtol=1e-6)
    np.testing.assert_array_equal(found.targets, TRUTH)


def test_columns_that_no_pattern_names_are_left_out(tmp_path):
    table = columns("pred_*", "true_*", note=["x"] * 60, other=[7.5] * 60)
    path = write(tmp_path / "x.csv", table)
    layout = Layout(value_columns="pred_*", truth_columns="true_*")
    assert cr.Predictions.from_values(path, "logits", loss="bce", layout=layout).labels == LABELS
    usual = write(tmp_path / "y.csv", columns("pred_*", "y:*", note=["x"] * 60))
    found = cr.Predictions.from_values(
        usual, "logits", loss="bce", layout=Layout(value_columns="pred_*")
    )
    np.testing.assert_array_equal(found.targets, TRUTH)


def test_two_columns_are_one_label(tmp_path):
    path = write(tmp_path / "x.csv", {"id": IDS, "margin": SCORES[:, 0], "sick": TRUTH[:, 0]})
    layout = Layout(value_columns="margin", truth_columns="sick")
    found = cr.Predictions.from_values(path, "logits", loss="bce", layout=layout)
    assert found.labels == ["margin"]
    np.testing.assert_array_equal(found.targets[:, 0], TRUTH[:, 0])


def test_truth_of_another_file_has_its_own_columns(tmp_path):
    values = write(tmp_path / "v.csv", {"id": IDS, **dict(zip(LABELS, SCORES.T, strict=True))})
    named = {f"gold_{label}": TRUTH[::-1, place] for place, label in enumerate(LABELS)}
    truth = write(tmp_path / "t.parquet", {"id": IDS[::-1], **named, "note": ["x"] * 60})
    found = cr.Predictions.from_values(
        values, "logits", loss="bce", truth=truth, layout=Layout(truth_columns="gold_*")
    )
    np.testing.assert_array_equal(found.targets, TRUTH)


def test_arrays_have_names_of_their_own(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, outputs=SCORES, gold=TRUTH, labels=LABELS, scores=np.zeros((2, 2)))
    layout = Layout(value_columns="outputs", truth_columns="gold")
    found = cr.Predictions.from_values(path, "logits", loss="bce", layout=layout)
    assert found.labels == LABELS
    np.testing.assert_array_equal(found.targets, TRUTH)
    with pytest.raises(cr.InputError, match="there must be an array called 'output'"):
        cr.Predictions.from_values(
            path, "logits", loss="bce", layout=Layout(value_columns="output")
        )


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout(value_columns="prd_*"), r"x\.csv: there must be columns called 'prd_\*'"),
        (Layout(truth_columns="t_*"), r"x\.csv: there must be columns called 't_\*'"),
        (Layout(value_columns="*_*"), r"one '\*' at most"),
        (Layout(value_columns="pred_*", truth_columns="true_c*"), "'y:cat'"),
    ],
)
def test_patterns_that_fit_nothing_are_named(tmp_path, layout, words):
    path = write(tmp_path / "x.csv", columns("pred_*", "true_*"))
    with pytest.raises(cr.InputError, match=words):
        cr.Predictions.from_values(path, "logits", loss="bce", layout=layout)


HEADER = b"\x93NUMPY\x01\x00\x40\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"


@pytest.mark.parametrize("place", range(10, len(HEADER), 3))
@pytest.mark.parametrize("cell", [b"(", b"\xff", b"'", b"\0"])
def test_damaged_headers_of_arrays_are_refused(tmp_path, place, cell):
    content = HEADER[:place] + cell + HEADER[place + 1 :] + b"\0" * 20
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(cr.InputError, match=r"x\.npy must"):
        cr.Predictions.from_values(path, "logits", loss="bce")


def test_the_command_line_takes_patterns(tmp_path, capsys):
    ours = write(tmp_path / "x.csv", columns("pred_*", "true_*"))
    usual = write(tmp_path / "y.csv", columns("s:*", "y:*"))
    flags = ["--loss", "bce", "--save", str(tmp_path / "map.json"), "--json"]
    patterns = ["--value-columns", "pred_*", "--truth-columns", "true_*"]
    assert main(["calibrate", str(ours), *patterns, *flags]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["calibrate", str(usual), *flags]) == 0
    assert first["stages"] == json.loads(capsys.readouterr().out)["stages"]
