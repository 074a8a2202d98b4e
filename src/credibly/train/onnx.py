"""A run as one ONNX file: inputs → scores → link → calibrator → probabilities → label sets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from credibly import __version__
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.train.batches import mixed
from credibly.train.run import Run

if TYPE_CHECKING:
    from credibly.types import Array

OPSET = 17
TOLERANCE = 1e-4
"""Largest difference in probability between onnxruntime and torch: float32 on both sides."""


class Whole(nn.Module):
    """Everything a run does to its inputs, in torch alone."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model, self.criterion = run.model, run.criterion
        state = {"calibrator": "none"} if run.calibrator is None else run.calibrator.state()
        self.calibrator = Calibration(state)
        decision = {"decision": "threshold", "threshold": 0.5}
        self.decision = Sets(decision if run.decision is None else run.decision.state())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.model(inputs)
        ranked = self.criterion.ranking_scores(scores)
        odds = self.criterion.log_odds(scores) if self.criterion.has_link else ranked
        probabilities = torch.sigmoid(self.calibrator(odds))
        return ranked, probabilities, self.decision(probabilities)


class Calibration(nn.Module):
    """A calibrator's state as torch operations; the same map as ``calibrator.transform``."""

    slope: Tensor
    slopes: Tensor
    slope_low: Tensor
    slope_high: Tensor
    intercept: Tensor
    intercepts: Tensor
    floor: Tensor
    ceiling: Tensor
    points: Tensor
    rates: Tensor

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.kind = state["calibrator"]
        for name, value in state.items():
            if name != "calibrator":
                self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32))

    def forward(self, odds: Tensor) -> Tensor:
        if self.kind == "none":
            return odds
        if self.kind == "isotonic":
            return self._interpolated(odds)
        if self.kind == "beta":
            low, high = logsigmoid(odds), -logsigmoid(-odds)
            mapped = self.slope_low * low + self.slope_high * high + self.intercept
        elif self.kind == "per-label":
            mapped = self.slopes * odds + self.intercepts
        elif self.kind == "temperature":
            mapped = self.slope * odds
        else:
            mapped = self.slope * odds + self.intercept
        return self._squeezed(mapped)

    def _squeezed(self, odds: Any) -> Tensor:
        below, above = torch.relu(self.floor - odds), torch.relu(odds - self.ceiling)
        inside = torch.minimum(torch.maximum(odds, self.floor), self.ceiling)
        return inside + 1 / (1 + below) - 1 / (1 + above)

    def _interpolated(self, odds: Tensor) -> Tensor:
        points, rates = torch.atleast_1d(self.points), torch.atleast_1d(self.rates)
        if len(points) == 1:
            return torch.logit(rates[0]).expand_as(odds)
        odds = torch.minimum(torch.maximum(odds, points[0]), points[-1])
        right = (odds[..., None] >= points).sum(-1).clamp(1, len(points) - 1)
        start, stop = points[right - 1], points[right]
        # Two points may coincide: a jump, whose right end counts.
        share = torch.where(stop > start, (odds - start) / (stop - start), 1.0)
        rate = rates[right - 1] + share * (rates[right] - rates[right - 1])
        return torch.log(rate) - torch.log1p(-rate)


class Sets(nn.Module):
    """A threshold decision's state as torch operations."""

    threshold: Tensor

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.kind = state["decision"]
        if self.kind not in ("threshold", "average-size", "best-f"):
            raise InputError(f"a decision of kind {self.kind!r} has no form in ONNX.")
        threshold = state["thresholds"] if self.kind == "best-f" else state["threshold"]
        self.register_buffer("threshold", torch.as_tensor(threshold, dtype=torch.float32))
        self.tied = int(state.get("tied_labels", 0))

    def forward(self, probabilities: Tensor) -> Tensor:
        if self.kind == "threshold":
            return probabilities >= self.threshold
        above = probabilities > self.threshold
        if self.tied == 0:
            return above
        first = torch.arange(probabilities.shape[1]) < self.tied
        return above | ((probabilities == self.threshold) & first)


def export(run: Run, path: str | Path) -> dict[str, Any]:
    """Write ``run`` as ONNX; it gets its name only after onnxruntime agreed with torch.

    Input ``inputs`` (rows, …) float32: features, or images (channels, height, width) in [0, 1].
    Outputs ``scores``, ``probabilities`` and ``sets``, each (rows, labels). The labels are in the
    file's metadata.

    Returns:
        shape of one input, labels, and the largest difference found in probabilities.
    """
    onnx = _library("onnx")
    _library("onnxruntime")
    whole = Whole(run).eval()
    shape = tuple(run.data["shape"])
    with atomic_path(path) as beside:
        _write(whole, shape, beside)
        model = onnx.load(str(beside))
        about = {"labels": run.labels, "loss": run.settings.loss, "credibly": __version__}
        onnx.helper.set_model_props(model, {"credibly": json.dumps(about, ensure_ascii=False)})
        onnx.save(model, str(beside))
        difference = _difference(whole, shape, beside)
        if not difference <= TOLERANCE:
            raise InputError(
                f"the ONNX form of {run.folder} differs from torch by {difference:.2g} in "
                f"probability, more than {TOLERANCE:g}; nothing was written."
            )
    return {"shape": list(shape), "labels": run.labels, "difference": difference}


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"export needs {name} ({error}). Install it with `pip install 'credibly[export]'`."
        ) from error


def _write(whole: Whole, shape: tuple[int, ...], path: Path) -> None:
    names = ["scores", "probabilities", "sets"]
    rows = {name: {0: "rows"} for name in ["inputs", *names]}
    with warnings.catch_warnings(), torch.no_grad():
        # The exporter that needs no further package; torch warns that it has a newer one.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                whole,
                (_inputs(2, shape),),
                str(path),
                input_names=["inputs"],
                output_names=names,
                dynamic_axes=rows,
                opset_version=OPSET,
                dynamo=False,
            )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"the model or the link of {whole.criterion} has no form in ONNX: {reason}"
            ) from error


def _inputs(rows: int, shape: tuple[int, ...]) -> Tensor:
    """Noise; images in [0, 1]."""
    generator = torch.Generator().manual_seed(mixed(rows))
    if len(shape) == 3:
        return torch.rand(rows, *shape, generator=generator)
    return torch.randn(rows, *shape, generator=generator)


def _difference(whole: Whole, shape: tuple[int, ...], path: Path) -> float:
    """Largest difference in probability on rows of noise, in a batch size not exported with."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = _inputs(7, shape)
    with torch.no_grad():
        _, ours, sets = whole(inputs)
    theirs: Any
    their_sets: Any
    _, theirs, their_sets = session.run(None, {"inputs": inputs.numpy()})
    apart = float(np.abs(ours.numpy() - theirs).max())
    return apart if _sets_agree(whole, ours.numpy(), sets.numpy(), their_sets) else np.inf


def _sets_agree(whole: Any, estimates: Array, ours: Array, theirs: Array) -> bool:
    """Equal but for probabilities that rounding may carry over the threshold."""
    near = np.abs(estimates - whole.decision.threshold.numpy()) <= TOLERANCE
    return bool(((ours == theirs) | near).all())
