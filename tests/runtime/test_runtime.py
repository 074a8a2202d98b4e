"""A saved map gives with numpy alone what the torch module gives: every loss, calibrator, rule."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.structure import code
from scipy.special import expit

import credibly as cr
from credibly import InputError, calibrate, decide, losses, runtime
from credibly.names import METHODS

LABELS, ROWS = 4, 200
CONTEXT = {"num_labels": LABELS, "average_size": 2.0}
SUFFIXED = ["spa+lpr", "asl+published", "an+published", "avgk+published", "topk+published"]
WITH_ARGUMENTS = [
    "asl(margin=0)",
    "asl(detach_weight=true, margin=0.2)",
    "avgk(head=sccp)",
    "avgk(head=ml-softmax)",
    "bce(pos_weight=3)",
    "softmax(zero_label=none_class)",
    "spa(scale_neg=10, slope_pos=2)",
]
LOSSES = [*sorted(losses.names()), *SUFFIXED, *WITH_ARGUMENTS]
CALIBRATORS = [None, *(name for name in METHODS if name != "auto")]
SOFTMAX_CALIBRATORS = ("softmax-temperature", "vector")
DECISIONS = {
    "none": lambda: None,
    "threshold": lambda: decide.Threshold(0.3),
    "by name": lambda: decide.Threshold({"b": 0.2}, default=0.6),
    "cost": lambda: decide.Cost(3.0, review=0.2),
    "top-k": lambda: decide.TopK(2),
    "average size": lambda: decide.AverageSize(1.7),
    "best-f": lambda: decide.BestF(),
    "recall": lambda: decide.Recall(0.9),
    "precision per label": lambda: decide.Precision(0.6, per="label"),
    "lac": lambda: decide.Coverage(0.9),
    "aps": lambda: decide.Coverage(0.9, "aps"),
    "raps": lambda: decide.Coverage(0.8, "raps"),
}

NOISE = np.random.default_rng(0)
CLASSES = NOISE.integers(0, LABELS, ROWS)


def scores_of(loss: losses.Loss, rows: int = ROWS) -> np.ndarray:
    scores = np.random.default_rng(1).normal(-1, 3, (rows, loss.num_outputs(LABELS)))
    scores[np.arange(rows), CLASSES[:rows]] += 2
    return scores.astype(np.float32)


def saved(pipeline: cr.Pipeline, folder: Path) -> runtime.Map:
    pipeline.write(folder / "map.json")
    return runtime.load(folder / "map.json")


def pipeline_of(loss: str | None, calibrator: str | None = None, rule=None, link="own"):
    kept = None if calibrator is None else calibrate.from_name(calibrator)
    names = list("abcd")
    pipeline = cr.Pipeline(loss, kept, rule, context=CONTEXT, labels=names, link=link)
    if isinstance(rule, decide.Threshold):
        pipeline.decision = rule.for_labels(names)
    if loss is not None and loss.startswith("quasibinary"):
        scores = torch.from_numpy(scores_of(pipeline.loss))
        pipeline.loss.fit_state([(scores, torch.eye(LABELS)[CLASSES])])
    return pipeline


def assert_same(pipeline: cr.Pipeline, scores: np.ndarray, folder: Path) -> None:
    found = saved(pipeline, folder)
    with torch.no_grad():
        _, probabilities, sets = pipeline.to_module()(torch.from_numpy(scores.astype(np.float64)))
    np.testing.assert_allclose(
        found.probabilities(scores.astype(np.float64)),
        probabilities.numpy(),
        rtol=1e-6,
        atol=1e-300,
    )
    np.testing.assert_array_equal(found.sets(scores.astype(np.float64)), sets.numpy())
    np.testing.assert_array_equal(found.log_odds(scores), pipeline.log_odds(scores))
    assert found.labels == pipeline.labels


@pytest.mark.parametrize("link", ["own", "raw", "plateau"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_link_in_numpy_is_that_of_torch(loss, link, tmp_path):
    pipeline = pipeline_of(loss, link=link)
    if not pipeline.loss.has_link:
        pipeline.calibrator = calibrate.from_name("none")
    assert_same(pipeline, scores_of(pipeline.loss), tmp_path)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("loss", [None, "spa", "softmax", "probabilities"])
def test_every_calibrator_in_numpy_is_that_of_torch(loss, calibrator, tmp_path):
    if loss != "softmax" and calibrator in SOFTMAX_CALIBRATORS:
        pytest.skip("needs probabilities that sum to 1")
    scores = NOISE.normal(-1, 3, (ROWS, LABELS)).astype(np.float32)
    others = 30 * scores[:5]
    if loss == "probabilities":
        pipeline = pipeline_of(None, calibrator, link="probabilities")
        scores, others = expit(scores), expit(others)
    else:
        pipeline = pipeline_of(loss, calibrator)
    pipeline.fit(scores, np.eye(LABELS, dtype=int)[CLASSES])
    assert_same(pipeline, np.r_[scores, others], tmp_path)


@pytest.mark.parametrize("rule", DECISIONS)
@pytest.mark.parametrize("calibrator", [None, "isotonic"])
def test_every_rule_in_numpy_is_that_of_torch(rule, calibrator, tmp_path):
    pipeline = pipeline_of("softmax", calibrator, DECISIONS[rule]())
    scores = scores_of(pipeline.loss).round(1)  # with ties
    pipeline.fit(scores, np.eye(LABELS, dtype=int)[CLASSES])
    assert_same(pipeline, scores, tmp_path)


def test_a_loss_that_writes_its_link_anew_is_not_taken_for_its_parent():
    class Halved(losses.SPA):
        def log_odds(self, scores):
            return super().log_odds(scores) / 2

    scores = scores_of(losses.SPA())
    half, whole = (cr.Pipeline(loss).log_odds(scores) for loss in (Halved(), losses.SPA()))
    np.testing.assert_allclose(half, whole / 2)


ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "scipy", "sklearn", "numba", "pyarrow", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import json
import numpy as np
from credibly import runtime

found = runtime.load(sys.argv[1])
scores = np.load(sys.argv[2])
print(json.dumps([found.probabilities(scores).tolist(), found.sets(scores).tolist()]))
"""


def test_it_runs_with_numpy_alone(tmp_path):
    pipeline = pipeline_of("asl", "per-label", decide.AverageSize(2))
    scores = scores_of(pipeline.loss)
    pipeline.fit(scores, np.eye(LABELS, dtype=int)[CLASSES])
    pipeline.write(tmp_path / "map.json")
    np.save(tmp_path / "scores.npy", scores)
    command = [sys.executable, "-c", ALONE, tmp_path / "map.json", tmp_path / "scores.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    probabilities, sets = json.loads(done.stdout)
    np.testing.assert_array_equal(probabilities, pipeline.probabilities(scores))
    np.testing.assert_array_equal(sets, pipeline.sets(scores))


def test_the_file_is_short_and_imports_numpy_and_the_standard_library_only():
    import ast

    text = Path(runtime.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for n in nodes
        for name in ([n.module] if isinstance(n, ast.ImportFrom) else [a.name for a in n.names])
    }
    assert names <= {*sys.stdlib_module_names, "numpy"}
    lines, _ = code(text, tree)
    assert lines <= 270  # without examples and other documentation


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[]", "'runtime'"),
        ("{", "must be a map of credibly"),
        (json.dumps({"pipeline": 1, "loss": None}), r"Pipeline.read\(old\).write\(new\)"),
    ],
)
def test_other_files_are_refused(text, match, tmp_path):
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(InputError, match=match) as error:
        runtime.load(path)
    assert str(path) in str(error.value)


def test_a_missing_file_and_wrong_columns_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        runtime.load(tmp_path / "no.json")
    pipeline = pipeline_of(None, "per-label")
    scores = scores_of(losses.BCE())
    found = saved(pipeline.fit(scores, np.eye(LABELS, dtype=int)[CLASSES]), tmp_path)
    with pytest.raises(InputError, match="must have 4 columns"):
        found.probabilities(scores[:, :3])
    with pytest.raises(InputError, match="must be a matrix"):
        found.probabilities(scores[0])


@pytest.mark.parametrize("loss", [None, "asl", "softmax", "avgk"])
def test_a_map_becomes_onnx_by_the_command_line(loss, tmp_path, capsys):
    onnxruntime = pytest.importorskip("onnxruntime")
    from credibly.cli import main

    pipeline = pipeline_of(loss, "affine", decide.TopK(2))
    scores = scores_of(losses.BCE() if loss is None else pipeline.loss)
    pipeline.fit(scores, np.eye(LABELS, dtype=int)[CLASSES])
    found = saved(pipeline, tmp_path)
    out = tmp_path / "map.onnx"
    assert main(["export", str(tmp_path / "map.json"), "--out", str(out)]) == 0
    session = onnxruntime.InferenceSession(str(out))
    _, probabilities, sets = session.run(None, {"inputs": scores})
    np.testing.assert_allclose(probabilities, found.probabilities(scores), atol=1e-5)
    np.testing.assert_array_equal(sets, found.sets(scores))
    assert "Largest difference" in capsys.readouterr().out
