"""A run as one ONNX file: inputs → scores → link → calibrator → probabilities → label sets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly import __version__
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.train.batches import mixed
from credibly.train.run import Run

OPSET = 17
TOLERANCE = 1e-4
"""Largest difference in probability between onnxruntime and torch: float32 on both sides."""


class RunModule(nn.Module):
    """Everything a run does to its inputs, in torch alone."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model, self.pipeline = run.model, run.pipeline.to_module()

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.pipeline(self.model(inputs))


def export(run: Run, path: str | Path) -> dict[str, Any]:
    """Write ``run`` as ONNX; it gets its name only after onnxruntime agreed with torch.

    Input ``inputs`` (rows, …) float32: features, or images (channels, height, width) in [0, 1].
    Outputs ``scores``, ``probabilities`` and ``sets``, each (rows, labels). The labels are in the
    file's metadata.

    Returns:
        shape of one input, labels, and the largest difference in probabilities.
    """
    onnx = _library("onnx")
    _library("onnxruntime")
    module = RunModule(run).eval()
    shape = tuple(run.data["shape"])
    with atomic_path(path) as beside:
        _write(module, shape, beside)
        model = onnx.load(str(beside))
        about = {"labels": run.labels, "loss": run.settings.loss, "credibly": __version__}
        onnx.helper.set_model_props(model, {"credibly": json.dumps(about, ensure_ascii=False)})
        onnx.save(model, str(beside))
        difference = _difference(module, shape, beside)
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


def _write(module: RunModule, shape: tuple[int, ...], path: Path) -> None:
    names = ["scores", "probabilities", "sets"]
    rows = {name: {0: "rows"} for name in ["inputs", *names]}
    with warnings.catch_warnings(), torch.no_grad():
        # The exporter that needs no further package; torch warns that it has a newer one.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
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
                f"the model or the link of {module.pipeline.loss} has no form in ONNX: {reason}"
            ) from error


def _inputs(rows: int, shape: tuple[int, ...]) -> Tensor:
    """Return noise; images in [0, 1]."""
    generator = torch.Generator().manual_seed(mixed(rows))
    if len(shape) == 3:
        return torch.rand(rows, *shape, generator=generator)
    return torch.randn(rows, *shape, generator=generator)


def _difference(module: Any, shape: tuple[int, ...], path: Path) -> float:
    """Return the largest difference in probability, on noise in another batch size."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = _inputs(7, shape)
    with torch.no_grad():
        _, ours, _ = module(inputs)
    theirs: Any
    their_sets: Any
    _, theirs, their_sets = session.run(None, {"inputs": inputs.numpy()})
    # Sets are exact functions of probabilities: those of onnxruntime's own must be equal.
    sets = module.pipeline.decision(torch.from_numpy(theirs))
    same = np.array_equal(sets.numpy(), their_sets)
    return float(np.abs(ours.numpy() - theirs).max()) if same else np.inf
