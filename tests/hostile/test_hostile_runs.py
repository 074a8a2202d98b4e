"""Run folders and configurations that somebody tampered with."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly import calibrate, decide, losses
from credibly.cli import main

SOURCE = Path(cr.__file__).parent


@pytest.fixture
def folder(tmp_path):
    features = np.random.default_rng(0).normal(size=(40, 2))
    rows = cr.data.from_arrays(features=features, targets=features > 0, labels=["a", "b"])
    how = cr.train.Network(model="linear", loss="bce", epochs=1, calibrate="none")
    cr.train.fit(rows, how, folder=tmp_path)
    (tmp_path / "manifest.json").unlink()  # which would name the file first
    return tmp_path


def test_an_untouched_run_predicts(folder):
    assert cr.load(folder).predict(np.eye(2, dtype=np.float32)).probabilities.shape == (2, 2)


CHANGES = {
    "no tables": ("config.toml", r"[\s\S]*", "x = 1"),
    "no shape": ("config.toml", r"shape = .*", ""),
    "a huge model": ("config.toml", r"shape = .*", "shape = [400000000000]"),
    "a shape of text": ("config.toml", r"shape = .*", 'shape = ["a"]'),
    "negative": ("config.toml", r"shape = .*", "shape = [-2]"),
    "labels of numbers": ("config.toml", r"labels = .*", "labels = [1, 2]"),
    "more labels": ("config.toml", r"labels = .*", 'labels = ["a", "b", "c"]'),
    "epochs of text": ("config.toml", r"epochs = .*", 'epochs = "many"'),
    "milestones": ("config.toml", r"milestones = .*", "milestones = 3"),
    "another loss": ("config.toml", r"loss = .*", 'loss = "nonsense"'),
    "estimates of all rows": (
        "config.toml",
        r"loss = .*((?:.|\n)*)train_rows = .*",
        r'loss = "role(average_size=1)"\1train_rows = 900000000000',
    ),
    "deep toml": ("config.toml", r"[\s\S]*", "x = " + "[" * 5000),
    "endless number": ("config.toml", r"[\s\S]*", "x = " + "9" * 5000),
    "no json": ("calibration.json", r"[\s\S]*", "{"),
    "deep json": ("calibration.json", r"[\s\S]*", "[" * 100_000),
    "a list": ("calibration.json", r"[\s\S]*", "[]"),
    "another calibrator": ("calibration.json", r'"calibrator": null', '"calibrator": {"a": 1}'),
    "a list for a name": (
        "calibration.json",
        r'"calibrator": null',
        '"calibrator": {"calibrator": ["affine"]}',
    ),
    "a decision of text": ("calibration.json", r'"threshold": 0.5', '"threshold": "half"'),
}


@pytest.mark.parametrize(("name", "old", "new"), CHANGES.values(), ids=CHANGES.keys())
def test_a_tampered_run_is_refused(folder, name, old, new):
    path = folder / name
    text = re.sub(old, new, path.read_text(), count=1)
    assert text != path.read_text()
    path.write_text(text)
    with pytest.raises(cr.InputError):
        cr.load(folder)


HEADERS = {
    "a length past the end": struct.pack("<Q", 2**62) + b"{}",
    "a deep header": struct.pack("<Q", 50_000) + b"[" * 50_000,
    "offsets past the end": b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
    "a shape that overflows": (
        b'{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}'
    ),
    "no entry": b"{}",
    "an entry of text": b'{"__metadata__": {"credibly": "x"}}',
    "no version": b'{"__metadata__": {"credibly": "{}"}}',
    "a version of numbers": b'{"__metadata__": {"credibly": "{\\"version\\": 1}"}}',
    "a deep entry": b'{"__metadata__": {"credibly": "' + b"[" * 50_000 + b'"}}',
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_a_lying_header_of_weights_is_refused(folder, header):
    whole = struct.pack("<Q", len(header)) + header if header[:1] == b"{" else header
    (folder / "model.safetensors").write_bytes(whole)
    with pytest.raises(cr.InputError, match="safetensors"):
        cr.load(folder)


STATES = [
    (calibrate, {"calibrator": {}}),
    (calibrate, {"calibrator": "affine", "slope": "1", "intercept": 0, "floor": 0, "ceiling": 1}),
    (calibrate, {"calibrator": "temperature", "slope": None, "floor": -1, "ceiling": 1}),
    (calibrate, {"calibrator": "isotonic", "points": [0, 1], "rates": [0.5]}),
    (calibrate, {"calibrator": "isotonic", "points": [[0]], "rates": [0.5]}),
    (decide, {"decision": []}),
    (decide, {"decision": "top-k", "k": "many"}),
    (decide, {"decision": "top-k", "k": float("nan")}),
    (decide, {"decision": "best-f", "beta": 1.0, "thresholds": {}}),
]


@pytest.mark.parametrize(("package", "state"), STATES)
def test_a_strange_state_is_refused(package, state):
    with pytest.raises(cr.InputError):
        package.from_state(json.loads(json.dumps(state)))


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000, "seed = " + "9" * 5000, "\udcff", "=", "a=1"]
)
def test_a_strange_configuration_is_refused(text, tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert main(["train", "digits", "--out", str(tmp_path / "x"), "--config", str(path)]) == 2
    assert "run.toml" in capsys.readouterr().err


def test_numbers_that_no_machine_holds_are_refused(folder, capsys):
    path = folder / "run.toml"
    path.write_text("learning_rate = 1" + "0" * 400)
    assert main(["train", "digits", "--out", str(folder / "x"), "--config", str(path)]) == 2
    assert "'learning_rate' must be a number" in capsys.readouterr().err
    stored = folder / "config.toml"
    stored.write_text(re.sub(r"learning_rate = .*", path.read_text(), stored.read_text()))
    with pytest.raises(cr.InputError, match="`learning_rate` must be a number"):
        cr.load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "+" * 100_000,
        "spa" + "(" * 5000,
        "spa+lpr(weigth=2)",
        "role(num_rows=900000000000)",
        "role(seed=1e400)",
        "bce" + "+lpr" * 200,
        "avgk(average_size=x)",
        "topk(seed=-1e99)",
        "spa(scale_neg=\udcff)",
    ],
)
def test_strange_losses_are_refused_at_once(name):
    with pytest.raises(cr.InputError):
        losses.from_name(name, num_labels=3, num_rows=4, average_size=2)


RUNS_WHAT_IT_READS = re.compile(
    r"torch\.load\((?![^)]*weights_only=True)|allow_pickle=True|(?<![\w.])(eval|exec)\(|yaml\.load"
    r"|^\s*(import|from) (pickle|cPickle|dill|joblib|marshal|shelve|yaml)\b",
    re.MULTILINE,
)


def test_nothing_that_runs_what_it_reads_is_called():
    found = {
        path.name: match[0]
        for path in SOURCE.rglob("*.py")
        if (match := RUNS_WHAT_IT_READS.search(path.read_text(encoding="utf-8")))
    }
    # Compiled code is read as a pickle, from a folder that only the user can write to.
    assert found == {"compiled.py": "import pickle"}
    assert RUNS_WHAT_IT_READS.search("    import pickle")
