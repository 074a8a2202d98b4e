"""Sets do not depend on the arithmetic: float64, float32, torch and ONNX agree, also on ties."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.special import expit
from torch import nn

import credibly as cr
from credibly import calibrate, decide
from credibly.names import CALIBRATORS

LABELS = 6
DECISIONS = {
    "threshold": lambda: decide.Threshold(0.3),
    "threshold on a tie": lambda: decide.Threshold(float(expit(0.5))),
    "cost": lambda: decide.Cost(3.0),
    "top-k": lambda: decide.TopK(2),
    "best-f": lambda: decide.BestF(),
    "average size": lambda: decide.AverageSize(1.7),
    "average size, one label": lambda: decide.AverageSize(1),
    "average size, expected": lambda: decide.AverageSize(2.3, "expected"),
    "average size, probability": lambda: decide.AverageSize(2.3, ("probability", 0.1)),
    "recall": lambda: decide.Recall(0.9),
    "recall, probability": lambda: decide.Recall(0.8, ("probability", 0.1)),
    "recall per label": lambda: decide.Recall(0.95, per="label"),
    "recall per label, probability": lambda: decide.Recall(0.8, ("probability", 0.1), "label"),
    "precision": lambda: decide.Precision(0.7),
    "precision per label": lambda: decide.Precision(0.6, per="label"),
}
ONE_LABEL = {
    "lac": lambda: decide.Coverage(0.9),
    "aps": lambda: decide.Coverage(0.9, "aps"),
    "raps": lambda: decide.Coverage(0.8, "raps"),
}
SOURCES = ["rounded", "plateau", "saturated", "continuous"]


def draw(source: str, rows: int, seed: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return a loss, scores that float32 holds exactly, and targets."""
    noise = np.random.default_rng(seed)
    odds = noise.normal(-0.7, 1.8, (rows, LABELS))
    targets = (noise.random(odds.shape) < expit(odds)).astype(np.int8)
    loss, scores = {
        "rounded": ("bce", odds.round(1)),
        "plateau": ("asl", 2 * odds - 1),  # the link of ASL is level below its margin
        "saturated": ("bce", 12 * odds),
        "continuous": ("focal", odds),
    }[source]
    return loss, scores.astype(np.float32).astype(np.float64), targets


class Sets(nn.Module):
    """The sets of several pipelines."""

    def __init__(self, pipelines: list[cr.Pipeline]) -> None:
        super().__init__()
        self.modules_ = nn.ModuleList(each.to_module() for each in pipelines)

    def forward(self, scores: torch.Tensor) -> list[torch.Tensor]:
        return [module(scores)[2] for module in self.modules_]


def run_onnx(module: nn.Module, names: list[str], scores: np.ndarray, path: str) -> list:
    example = torch.from_numpy(scores[:2])
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (example,), path, input_names=["scores"], output_names=names,
            dynamic_axes={name: {0: "rows"} for name in ["scores", *names]}, opset_version=17,
            dynamo=False,
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options).run(None, {"scores": scores})


@pytest.mark.parametrize("calibrator", [None, *CALIBRATORS])
@pytest.mark.parametrize("source", SOURCES)
def test_every_arithmetic_gives_the_same_sets(source, calibrator, tmp_path):
    name, scores, targets = draw(source, 800, seed=0)
    loss = cr.losses.from_name(name).eval()  # one for all, so that its plateau is sought once
    single = np.where(targets.any(axis=1), targets.argmax(axis=1), 0)
    kept = None if calibrator is None else calibrate.from_name(calibrator)
    estimates = cr.Pipeline(loss, kept).fit(scores, targets).probabilities(scores)
    pipelines = [
        cr.Pipeline(loss, kept, make().fit(estimates, single if name in ONE_LABEL else targets))
        for name, make in {**DECISIONS, **ONE_LABEL}.items()
    ]
    _, new, _ = draw(source, 3001, seed=1)
    rows = np.concatenate([scores, new])
    narrow = rows.astype(np.float32)
    names = [*DECISIONS, *ONE_LABEL]
    module = Sets(pipelines)
    with torch.no_grad():
        by_torch = module(torch.from_numpy(narrow))
    by_onnx = run_onnx(module, names, narrow, str(tmp_path / "sets.onnx"))
    wrong = {}
    for place, (name, pipeline) in enumerate(zip(names, pipelines, strict=True)):
        expected = pipeline.sets(rows)
        others = {
            "float32 scores": pipeline.sets(narrow),
            "torch": by_torch[place].numpy(),
            "onnx": by_onnx[place],
        }
        if source != "saturated":  # float32 cannot tell probabilities near 1 apart
            stored = pipeline.probabilities(rows).astype(np.float32)
            others["float32 probabilities"] = pipeline.decide(stored)
        for other, sets in others.items():
            if (sets != expected).any():
                wrong[name, other] = int((sets != expected).sum())
    assert not wrong
