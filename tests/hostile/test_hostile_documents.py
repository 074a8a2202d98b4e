"""JSON, TOML and arrays with a wrong value anywhere: one sentence, never a traceback."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

import credibly as cr
from credibly.checks import InputError
from credibly.cli import main
from credibly.train import fit, recipe

DATA = cr.data.synthetic(80, num_features=4)
SCORES = np.random.default_rng(0).normal(size=(200, 3))
TRUTH = (SCORES + np.random.default_rng(1).normal(size=SCORES.shape) > 0).astype(int)
WRONG = ([], {}, None, "x", -1, 1.5, True, [[]], [1.0, 2.0], [1, "x"], [None], 1e308, 10**30)
METHODS = ("affine", "isotonic", "beta", "per-label", "temperature")


def places(document: object, at: tuple = ()) -> Iterator[tuple]:
    """Yield the way to every value of a document, of lists to the first two."""
    yield at
    if isinstance(document, dict):
        for name, value in document.items():
            yield from places(value, (*at, name))
    elif isinstance(document, list):
        for number, value in enumerate(document[:2]):
            yield from places(value, (*at, number))


def changed(document, at: tuple, value: object):
    if not at:
        return value
    document = copy.deepcopy(document)
    inner = document
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = value
    return document


def try_all(path, use, inside: str = "") -> None:
    """Put every wrong value into every place; ``use`` works or says what is wrong."""
    document = json.loads(path.read_text("utf-8"))
    for at in places(document):
        if inside and inside not in at:
            continue
        for value in WRONG:
            path.write_text(json.dumps(changed(document, at, value)), "utf-8")
            with suppress(InputError), np.errstate(all="ignore"):
                use()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_map(method, tmp_path):
    path = tmp_path / "map.json"
    found = cr.calibrate_scores(SCORES, TRUTH, loss="asl", method=method)
    found.pipeline.write(path)
    # What does not depend on the method is tried once.
    inside = "" if method == METHODS[0] else "calibrator"
    try_all(path, lambda: cr.Pipeline.read(path).probabilities(SCORES[:9]), inside)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_map_for_numpy(method, tmp_path):
    path = tmp_path / "map.json"
    pipeline = cr.calibrate_scores(SCORES, TRUTH, loss="asl", method=method).pipeline
    probabilities = pipeline.probabilities(SCORES)
    # What does not depend on the method is tried once.
    rules = (cr.decide.TopK(1), cr.decide.AverageSize(1)) if method == METHODS[0] else (None,)
    for rule in rules:
        pipeline.decision = rule and rule.fit(probabilities, TRUTH)
        pipeline.write(path)
        inside = "calibrator" if rule is None else ""
        try_all(path, lambda: cr.runtime.load(path).probabilities(SCORES[:9]), inside)
        if rule is not None:
            try_all(path, lambda: cr.runtime.load(path).sets(SCORES[:9]), "runtime")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["affine", "isotonic", "per-label"])
def test_the_calibration_of_a_run(method, tmp_path):
    settings = recipe(model="linear", epochs=1, calibrate=method)
    fit(DATA, settings, folder=tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    path = tmp_path / "run" / "calibration.json"
    try_all(path, lambda: cr.load(tmp_path / "run").predict(DATA.features))


@pytest.mark.filterwarnings("ignore")
def test_the_candidates_of_a_run(tmp_path):
    fit(DATA, recipe(model="auto"), folder=tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    path = tmp_path / "run" / "candidates.json"
    document = json.loads(path.read_text("utf-8"))
    for value in (*WRONG, ["linear", []], [{}]):
        path.write_text(json.dumps({**document, "members": value}), "utf-8")
        with suppress(InputError):
            cr.load(tmp_path / "run")


@pytest.mark.filterwarnings("ignore")
def test_a_joint_model(tmp_path):
    probabilities = 1 / (1 + np.exp(-SCORES))
    names = ["a", "b", "c"]
    predictions = tmp_path / "p.parquet"
    cr.Predictions.from_arrays(probabilities=probabilities, targets=TRUTH, labels=names).write(
        predictions
    )
    path = tmp_path / "joint.json"
    cr.retrieve.Joint().fit(probabilities, TRUTH, names).write(path)
    rows = cr.retrieve.Index.read(predictions)
    try_all(path, lambda: rows.search("+a -b", top=3, joint=cr.retrieve.Joint.read(path)))


@pytest.mark.parametrize("loss", [None, "bce"])
@pytest.mark.parametrize(
    "array",
    [np.array([["a", "b"], ["c", "d"]]), np.array([["1.0"], ["2.0"]])],
    ids=["text", "nums"],
)
def test_an_array_of_text_is_no_prediction(array, loss, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match="must be numbers; got"):
        cr.Predictions.from_values(
            tmp_path / "x.npy", "probabilities" if loss is None else "logits", loss=loss
        )


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e308, -1e39])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet"])
def test_scores_that_are_not_finite_are_not_imported(ending, value, tmp_path):
    scores = SCORES.copy()
    scores[7, 1] = value
    path = tmp_path / f"x{ending}"
    if ending == ".npy":
        np.save(path, scores)
    elif ending == ".npz":
        np.savez(path, scores=scores)
    else:
        frame = pytest.importorskip("pandas").DataFrame(scores, columns=["0", "1", "2"])
        frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    with pytest.raises(InputError, match=r"scores must be finite.*at row 7, label '1'"):
        cr.Predictions.from_values(path, "logits", loss="bce")


@pytest.mark.parametrize("setting", ["learning_rate", "weight_decay", "clip", "mixup"])
def test_settings_that_overflow_are_refused(setting):
    with pytest.raises(InputError, match=f"`{setting}` must lie in "):
        recipe(**{setting: 1e308})


@pytest.mark.parametrize("where", ["/dev/zero", "a pipe", "a folder", "large"])
def test_a_configuration_must_be_a_small_file(where, tmp_path):
    path = tmp_path / "config"
    if where == "a pipe":
        os.mkfifo(path)
    elif where == "a folder":
        path.mkdir()
    elif where == "large":
        path.write_bytes(b"#" * (2**20 + 1))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "credibly",
            "train",
            "digits",
            "--config",
            where if where[:1] == "/" else path,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "must" in done.stderr


LONG_KEYS = {
    "plain": "a" + ".a" * 400_000 + " = 1",
    "quoted": r"'#'" + r""" . "\"." """ * 60_000 + " = 1",
    "a table": "[" + "a . " * 200_000 + "a]",
    "inline": "b = {" + "a." * 400_000 + "a = 1}",
    "behind a text": "b = '''\"'''\n" + "a." * 400_000 + "a = 1",
}


def refusal(path, capsys) -> str:
    """Return the error about a configuration file."""
    assert main(["train", "digits", "--config", str(path), "--out", str(path.parent / "run")]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("case", LONG_KEYS)
def test_a_key_of_many_parts_is_refused_before_it_is_parsed(case, tmp_path, capsys):
    (tmp_path / "x.toml").write_text(LONG_KEYS[case])
    assert "x.toml must have keys of at most 100 parts" in refusal(tmp_path / "x.toml", capsys)


def test_other_dots_are_no_parts_of_a_key(tmp_path, capsys):
    numbers, text = "0.5, " * 500, "A sentence. " * 500
    content = f'spaa = [{numbers}]\nloss = "{text}"\n# {text}\nc.d.e = 1\n'
    (tmp_path / "x.toml").write_text(content)
    error = refusal(tmp_path / "x.toml", capsys)
    assert "unknown option 'spaa'" in error
    assert "100 parts" not in error


def test_more_columns_than_can_be_read_are_not_written(tmp_path):
    labels = [str(number) for number in range(250_000)]
    rows = cr.Predictions.from_arrays(
        probabilities=np.zeros((1, 250_000), dtype=np.float32),
        targets=np.zeros((1, 250_000), dtype=np.int8),
        labels=labels,
    )
    with pytest.raises(
        InputError, match=r"at most 500,000 columns; 250,000 labels.*instead \(`top`\)"
    ):
        rows.write(tmp_path / "p.parquet")
    assert not list(tmp_path.iterdir())
