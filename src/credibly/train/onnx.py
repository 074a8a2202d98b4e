"""A run as one ONNX file: inputs → scores → link → calibrator → probabilities → label sets."""

from __future__ import annotations

import json
import warnings
from functools import partial
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
    """Everything a run does to its inputs, in torch alone; several inputs go by name."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.model, self.pipeline = run.model, run.pipeline.to_module()
        self.names = _input_names(run)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.names == SINGLE:
            return self.pipeline(self.model(inputs[0]))
        from credibly.data import Tensors

        named = dict(zip(self.names, inputs, strict=True))
        return self.pipeline(self.model(Tensors(inputs[0].shape[0], **named)))


SINGLE = ("inputs",)
VOCABULARY_OUTSIDE = (
    "the file takes weights of terms, not texts: the vocabulary stays outside, in the run's folder "
    "(encoder/vocabulary.json); `run.model.encode(texts).matrix.toarray()` gives the rows"
)
TOKENIZER_OUTSIDE = (
    "the file takes tokens, not texts: the tokenizer stays outside, in the run's folder (encoder/)"
)


def _input_names(run: Run) -> tuple[str, ...]:
    from credibly.models import TextNetwork

    if isinstance(run.model, TextNetwork):
        return run.model.input_names
    if run.data["kind"].startswith("text"):
        raise InputError(
            f"export knows the inputs of built-in networks for texts; {run.settings.model} is one "
            "of your own. Export it by torch.onnx, followed by `run.pipeline.to_module()`."
        )
    return SINGLE


def export(run: Run, path: str | Path) -> dict[str, Any]:
    """Write ``run`` as ONNX; it gets its name only after onnxruntime agreed with torch.

    Input ``inputs`` (rows, …) float32: features, or images (channels, height, width) in [0, 1].
    Runs on texts take what their encoder makes of them, which stays outside: of ``tfidf`` the
    weights of terms (rows, terms), of ``hf:`` encoders ``input_ids`` and ``attention_mask``.
    Outputs ``scores``, ``probabilities`` and ``sets``, each (rows, labels). The labels and, where
    they are known, the names of the features in their order are in the file's metadata.

    Returns:
        shape of one input, labels, and the largest difference in probabilities; of runs on texts
        also ``encoder``, what must be done before.
    """
    onnx = _library("onnx")
    _library("onnxruntime")
    module: Any = RunModule(run).eval()
    text, single = run.data["kind"].startswith("text"), module.names == SINGLE
    shape = tuple(run.data["shape"])
    if text and single:
        shape = (module.model.num_features,)
    make = _inputs if single else partial(_named_inputs, module.model, run.data["shape"])
    with atomic_path(path) as beside:
        _write(module, make(2, shape), beside)
        model = onnx.load(str(beside))
        about: dict[str, Any] = {"labels": run.labels, "loss": run.settings.loss}
        about |= {"feature_names": run.feature_names, "credibly": __version__}
        onnx.helper.set_model_props(model, {"credibly": json.dumps(about, ensure_ascii=False)})
        onnx.save(model, str(beside))
        difference = _difference(module, make(7, shape), beside)
        if not difference <= TOLERANCE:
            raise InputError(
                f"the ONNX form of {run.folder} differs from torch by {difference:.2g} in "
                f"probability, more than {TOLERANCE:g}; nothing was written."
            )
    result = {"shape": list(shape), "labels": run.labels, "difference": difference}
    if text:
        result["encoder"] = VOCABULARY_OUTSIDE if single else TOKENIZER_OUTSIDE
        result["inputs"] = list(module.names)
    return result


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"export needs {name} ({error}). Install it with `pip install 'credibly[export]'`."
        ) from error


def _write(module: RunModule, inputs: tuple[Tensor, ...], path: Path) -> None:
    names = ["scores", "probabilities", "sets"]
    rows = {name: {0: "rows"} for name in [*module.names, *names]}
    for name in module.names:
        if name in ("input_ids", "attention_mask", "token_type_ids"):
            rows[name][1] = "tokens"
    with warnings.catch_warnings(), torch.no_grad():
        # The exporter that needs no further package; torch warns that it has a newer one.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                inputs,
                str(path),
                input_names=list(module.names),
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


def _inputs(rows: int, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return noise; images in [0, 1]."""
    generator = torch.Generator().manual_seed(mixed(rows))
    if len(shape) == 3:
        return (torch.rand(rows, *shape, generator=generator),)
    return (torch.randn(rows, *shape, generator=generator),)


def _named_inputs(
    model: Any, data_shape: list[int], rows: int, shape: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """Return tokens of texts of several lengths, and noise for regions."""
    texts = [["a b c " * (row + 1)] * data_shape[0] for row in range(rows)]
    inputs = model.encode(np.array(texts, dtype=object)).batch(np.arange(rows))
    if len(data_shape) == 3:
        generator = torch.Generator().manual_seed(mixed(rows))
        regions = data_shape[1:]
        inputs["visual_feats"] = torch.randn(rows, *regions, generator=generator)
        inputs["visual_pos"] = torch.rand(rows, regions[0], 4, generator=generator)
        inputs["visual_attention_mask"] = torch.ones(rows, regions[0], dtype=torch.int64)
    return tuple(inputs[name] for name in model.input_names)


def _difference(module: Any, inputs: tuple[Tensor, ...], path: Path) -> float:
    """Return the largest difference in probability, on noise in another batch size."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        _, ours, _ = module(*inputs)
    theirs: Any
    their_sets: Any
    _, theirs, their_sets = session.run(
        None, {name: each.numpy() for name, each in zip(module.names, inputs, strict=True)}
    )
    # Sets are exact functions of probabilities: those of onnxruntime's own must be equal.
    sets = module.pipeline.decision(torch.from_numpy(theirs))
    same = np.array_equal(sets.numpy(), their_sets)
    return float(np.abs(ours.numpy() - theirs).max()) if same else np.inf
