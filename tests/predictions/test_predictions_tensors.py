"""A ``.pt`` file of another program: tensors that numpy can hold, and a sentence for the others."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.untrusted import tensors as tensor_files

SCORES = torch.tensor([[0.25, -1.5], [2.0, 0.5], [-3.0, 1.0]])

LOOP: list = []
LOOP.append(LOOP)


def refused():
    return {
        "expanded": (
            torch.zeros(1, 1).expand(40_000, 80_000),
            "stored in full; it has 40,000 × 80,000",
        ),
        "overlapping rows": (SCORES.as_strided((100, 2), (0, 1)), "stored in full"),
        "sparse": (SCORES.to_sparse(), r"it is sparse\. Save `tensor\.to_dense\(\)`"),
        "compressed": (SCORES.to_sparse_csr(), "it is sparse"),
        "meta": (torch.empty(3, 2, device="meta"), "on the meta device"),
        "nested": (torch.nested.nested_tensor([SCORES[0], SCORES[:, 0]]), "it is nested"),
        "quantized": (torch.quantize_per_tensor(SCORES, 0.1, 0, torch.qint8), "it is quantized"),
        "complex": (SCORES.to(torch.complex64), "it is complex"),
        "ragged list": (
            [[1.0, 2.0], [3.0]],
            "a list of numbers or of names, with rows of one length",
        ),
        "list of a list itself": (LOOP, "must"),
        "list of dicts": ([{}, {}], "must hold numbers or names; it holds object"),
        "text": ("abc", "must be a tensor or a list; it is a str"),
        "nothing": (None, "must be a tensor or a list; it is a NoneType"),
        "dict": ({"a": 1}, "must be a tensor or a list; it is a dict"),
        "long number": ([[10**400, 1], [1, 1]], "must"),
    }


def read():
    return {
        "float32": SCORES,
        "float64": SCORES.double(),
        "float16": SCORES.half(),
        "bfloat16": SCORES.bfloat16(),
        "float8": SCORES.to(torch.float8_e5m2),
        "transposed": SCORES.T.contiguous().T,
        "rows of more": torch.cat([SCORES, SCORES])[:3],
        "parameter": torch.nn.Parameter(SCORES),
        "list": SCORES.tolist(),
        "negated view": torch._neg_view(-SCORES),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of kinds of tensors that torch calls experimental
    REFUSED, READ = refused(), read()
filter_torch = pytest.mark.filterwarnings("ignore::UserWarning")


@filter_torch
@pytest.mark.parametrize("case", REFUSED)
def test_what_numpy_cannot_hold_is_refused_by_its_name(case, tmp_path):
    value, words = REFUSED[case]
    torch.save({"scores": value}, tmp_path / "x.pt")
    with pytest.raises(cr.InputError, match=rf"x\.pt: `scores`.*{words}"):
        tensor_files.load_tensors(tmp_path / "x.pt", "scores", ())


@filter_torch
@pytest.mark.parametrize("case", READ)
def test_other_tensors_are_read_as_they_are(case, tmp_path):
    torch.save({"logits": READ[case], "labels": ["a", "b"]}, tmp_path / "x.pt")
    found = tensor_files.load_tensors(tmp_path / "x.pt", "scores", ())
    np.testing.assert_array_equal(found["scores"], SCORES.numpy())
    assert found["labels"].tolist() == ["a", "b"]


def test_arrays_come_back_from_the_worker_as_they_are(tmp_path):
    content = {"scores": SCORES.bfloat16(), "targets": [[1, 0], [0, 1], [1, 1]]}
    content |= {"ids": ["ä", "b" * 300, ""], "labels": ["x", "y"]}
    torch.save(content, tmp_path / "x.pt")
    here = tensor_files.load_tensors(tmp_path / "x.pt", "scores", ())
    there = tensor_files.read_tensors(tmp_path / "x.pt", "scores", ())
    assert list(here) == list(there)
    for name, array in here.items():
        assert array.dtype == there[name].dtype
        np.testing.assert_array_equal(array, there[name])


@pytest.mark.parametrize("ending", [".pt", ".pth"])
def test_a_tensor_alone_has_the_meaning_asked_for(ending, tmp_path):
    torch.save(SCORES, tmp_path / f"x{ending}")
    found = cr.Predictions.from_values(tmp_path / f"x{ending}", "logits", loss="bce")
    np.testing.assert_array_equal(found.scores, SCORES.numpy())


def test_a_file_that_takes_too_much_is_one_sentence(tmp_path, monkeypatch):
    torch.save(SCORES, tmp_path / "x.pt")
    monkeypatch.setattr("credibly.child_processes.Worker.ask", lambda *_: None)
    with pytest.raises(cr.InputError, match=r"x\.pt must be a file that is read within"):
        cr.Predictions.from_values(tmp_path / "x.pt", "logits", loss="bce")


def test_pipes_and_missing_files_are_told_apart(tmp_path):
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(cr.InputError, match="named pipe"):
        cr.Predictions.from_values(tmp_path / "pipe.pt", "logits", loss="bce")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cr.Predictions.from_values(tmp_path / "missing.pt", "logits", loss="bce")


def test_the_command_takes_little_memory_for_an_expanded_tensor(tmp_path):
    torch.save(torch.zeros(1, 1).expand(40_000, 80_000), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").stat().st_size < 4000
    arguments = ["import", "x.pt", "--as", "logits", "--loss", "bce", "--out", "p.parquet"]
    done = subprocess.run(
        [sys.executable, "-m", "credibly", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "stored in full" in done.stderr
    assert not (tmp_path / "p.parquet").exists()
