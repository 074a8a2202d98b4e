"""Export a run as one ONNX file, from inputs to scores, probabilities and label sets."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly import __version__
from credibly.checks import InputError
from credibly.data.token_rows import Tensors
from credibly.files import atomic_path
from credibly.models.text import TextNetwork
from credibly.models.trees import TreesModule
from credibly.pipeline import Pipeline
from credibly.train.distributed import mixed
from credibly.train.run import Run
from credibly.types import Array, JsonObject

OPSET = 17
TOLERANCE = 1e-4
"""Largest difference in probability between onnxruntime and torch: float32 on both sides."""

MAX_ROWS = 10_000
"""Rows of the run's own predictions whose label sets are compared."""

MAX_CHANGED = 1e-4
"""Largest share of labels that may change sides, of those at a threshold up to rounding."""


def _single_precision(model: nn.Module) -> nn.Module:
    """Return a copy in float32. Trees do not change, because their thresholds must be exact."""
    copied = copy.deepcopy(model)
    for part in copied.modules():
        own = (*part.parameters(recurse=False), *part.buffers(recurse=False))
        for tensor in () if isinstance(part, TreesModule) else own:
            tensor.data = tensor.data.float() if tensor.is_floating_point() else tensor.data
    return copied


class ExportedModule(nn.Module):
    """A model and its pipeline in torch alone; several inputs are passed by name."""

    def __init__(self, model: nn.Module, pipeline: Pipeline, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.pipeline, self.names = model, pipeline.to_module(), names
        self.eval()

    def scores(self, *inputs: Tensor) -> Tensor:
        """Return the output of the model for ``inputs``, before the pipeline."""
        if self.names == SINGLE:
            return self.model(inputs[0])
        named = dict(zip(self.names, inputs, strict=True))
        return self.model(Tensors(inputs[0].shape[0], **named))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.pipeline(self.scores(*inputs))


SINGLE = ("inputs",)
VOCABULARY_OUTSIDE = (
    "the file takes weights of terms, not texts: the vocabulary stays outside, in the run's folder "
    "(encoder/vocabulary.json); `run.model.encode(texts).matrix.toarray()` gives the rows"
)
TOKENIZER_OUTSIDE = (
    "the file takes tokens, not texts: the tokenizer stays outside, in the run's folder (encoder/)"
)


def _input_names(run: Run) -> tuple[str, ...]:
    if isinstance(run.model, TextNetwork):
        return run.model.input_names
    if run.data["kind"].startswith("text"):
        raise InputError(
            f"export supports only built-in networks for texts; {run.recipe.model} is your own. "
            "Export it with torch.onnx, followed by `run.pipeline.to_module()`."
        )
    return SINGLE


def export(run: Run, path: str | Path) -> JsonObject:
    """Write ``run`` as ONNX, and compare it with the run in onnxruntime.

    Probabilities are compared on noise; label sets also on the scores in the run's predictions.

    The input is ``inputs`` (rows, …) float32: features, or images (channels, height, width) in [0,
    1]. For runs on texts, the input is the output of their encoder, which is not exported: the
    weights of terms (rows, terms) for ``tfidf``, ``input_ids`` and ``attention_mask`` for ``hf:``
    encoders. The outputs are ``scores``, ``probabilities`` and ``sets``, each (rows, labels). The
    metadata of the file contain the labels and, if known, the names of the features in order. The
    features are the result of the run's preparation of the columns of a table. The preparation is
    in the metadata as JSON, and ``credibly predict model.onnx`` applies it.

    Returns:
        The shape of one input, the labels, the largest difference in probability, the number of
        rows of the run whose label sets were compared, and the number of labels in them that
        changed; for runs on texts also ``encoder``, the required preprocessing.

    Example:
        >>> import credibly as cr
        >>> run = cr.train.fit(cr.data.load("synthetic", n=200), cr.train.Linear(l2=1.0))
        >>> exported = export(run, "linear.onnx")
        >>> exported["shape"], exported["changed"], exported["difference"] < 1e-5
        ([20], 0, True)
    """
    module: Any = ExportedModule(_single_precision(run.model), run.pipeline, _input_names(run))
    text, single = run.data["kind"].startswith("text"), module.names == SINGLE
    shape = tuple(run.data["shape"])
    if text and single:
        shape = (int(module.model.num_features),)
    make = partial(_inputs, shape=shape)
    if not single:
        make = partial(_named_inputs, module.model, run.data["shape"])
    about: JsonObject = {"labels": run.labels, "loss": run.recipe.loss}
    about |= {key: run.data.get(key) for key in ("feature_names", "preparation", "reader")}
    rows, changed = _compare_stored(run)
    difference = _export(path, module, run.pipeline, make, about, run.title)
    result = {"shape": list(shape), "labels": run.labels, "difference": difference}
    result |= {"rows": rows, "changed": changed}
    if text:
        result["encoder"] = VOCABULARY_OUTSIDE if single else TOKENIZER_OUTSIDE
        result["inputs"] = list(module.names)
    return result


def export_map(pipeline: Pipeline, path: str | Path) -> JsonObject:
    """Write a calibrator of scores as ONNX. Input: ``inputs``, (rows, scores per row), float32.

    A calibrator that was fitted on probabilities takes probabilities. The outputs and the check by
    onnxruntime are those of ``export``.
    """
    if pipeline.labels is None:
        raise InputError(
            "a map must hold the names of its labels to become ONNX; got none. Save it by "
            "`credibly calibrate --save`, or give `labels` to `Pipeline`."
        )
    count = len(pipeline.labels)
    shape = (count if pipeline.loss is None else pipeline.loss.num_outputs(count),)
    about = {"labels": pipeline.labels, "loss": pipeline.loss_name}

    def make(rows: int) -> tuple[Tensor, ...]:
        (noise,) = _inputs(rows, shape)
        return (noise.sigmoid() if pipeline.link == "probabilities" else noise,)

    module = ExportedModule(nn.Identity(), pipeline, SINGLE)
    difference = _export(path, module, pipeline, make, about, "the map")
    return {"shape": list(shape), "labels": pipeline.labels, "difference": difference, "rows": 0}


def _export(
    path: str | Path,
    module: ExportedModule,
    pipeline: Pipeline,
    make: Callable[[int], tuple[Tensor, ...]],
    about: JsonObject,
    title: str,
) -> float:
    """Write a module; return the largest difference in probability on noise."""
    onnx = _library("onnx")
    _library("onnxruntime")
    with atomic_path(path) as beside:
        _write(module, module.names, make(2), beside)
        model = onnx.load(str(beside))
        document = json.dumps({**about, "credibly": __version__}, ensure_ascii=False)
        onnx.helper.set_model_props(model, {"credibly": document})
        onnx.save(model, str(beside))
        difference = _difference(module, pipeline, make(7), beside, title)
        if not difference <= TOLERANCE:
            raise InputError(
                f"the probabilities of the ONNX model of {title} differ from torch by "
                f"{difference:.2g}, more than {TOLERANCE:g}. Nothing was written."
            )
    return difference


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"export needs {name} ({error}). Install it with `pip install 'credibly[export]'`."
        ) from error


def _write(module: nn.Module, given: Sequence[str], inputs: tuple[Tensor, ...], path: Path) -> None:
    names = ["scores", "probabilities", "sets"]
    rows = {name: {0: "rows"} for name in [*given, *names]}
    for name in given:
        if name in ("input_ids", "attention_mask", "token_type_ids"):
            rows[name][1] = "tokens"
    with warnings.catch_warnings(), torch.no_grad():
        # This exporter needs no further package. torch warns that a newer one exists.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                inputs,
                str(path),
                input_names=list(given),
                output_names=names,
                dynamic_axes=rows,
                opset_version=OPSET,
                dynamo=False,
            )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"the model or the link cannot be expressed in ONNX: {reason}"
            ) from error


def _inputs(rows: int, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return noise; images in [0, 1]."""
    generator = torch.Generator().manual_seed(mixed(rows))
    if len(shape) == 3:
        return (torch.rand(rows, *shape, generator=generator),)
    return (torch.randn(rows, *shape, generator=generator),)


def _named_inputs(model: Any, data_shape: list[int], rows: int) -> tuple[Tensor, ...]:
    """Return token ids of texts of several lengths, and noise for image regions."""
    texts = [["a b c " * (row + 1)] * data_shape[0] for row in range(rows)]
    inputs = model.encode(np.array(texts, dtype=object)).batch(np.arange(rows))
    if len(data_shape) == 3:
        generator = torch.Generator().manual_seed(mixed(rows))
        regions = data_shape[1:]
        inputs["visual_feats"] = torch.randn(rows, *regions, generator=generator)
        inputs["visual_pos"] = torch.rand(rows, regions[0], 4, generator=generator)
        inputs["visual_attention_mask"] = torch.ones(rows, regions[0], dtype=torch.int64)
    return tuple(inputs[name] for name in model.input_names)


def _run(path: Path, names: Sequence[str], inputs: Sequence[Array]) -> list[Array]:
    """Return scores, probabilities and sets, computed by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: Any = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


def _difference(
    module: ExportedModule, pipeline: Pipeline, inputs: tuple[Tensor, ...], path: Path, title: str
) -> float:
    """Return the largest difference in probability on noise, with another batch size."""
    _, estimates, sets = _run(path, module.names, [each.numpy() for each in inputs])
    with torch.no_grad():
        scores = module.scores(*inputs).numpy()
    _changed(title, sets, pipeline.sets(scores))
    return float(np.abs(pipeline.probabilities(scores) - estimates).max())


def _compare_stored(run: Run) -> tuple[int, int]:
    """Compare the sets of the stored scores; return the numbers of rows and of changed labels."""
    from credibly.predictions import Dataset

    if run.folder is None:
        return 0, 0
    stored, count = run.folder / "predictions.parquet", len(run.labels)
    if run.criterion.num_outputs(count) != count or not stored.exists():
        return 0, 0  # only ranking scores are stored
    scan = Dataset(stored)
    if not (scan.every_label and scan.has_scores):
        return 0, 0
    scores = scan.read(run.labels, np.arange(scan.num_rows) < MAX_ROWS).scores
    assert scores is not None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.onnx"
        _write(run.pipeline.to_module(), SINGLE, (torch.from_numpy(scores[:2]),), path)
        _, _, sets = _run(path, SINGLE, [scores])
    return len(scores), _changed(run.title, sets, run.pipeline.sets(scores))


def _changed(title: str, found: Array, expected: Array) -> int:
    """Return the number of labels in only one of two sets. Raise if there are more than a few."""
    changed = int((found != expected).sum())
    if changed > max(1, MAX_CHANGED * expected.size):
        raise InputError(
            f"the label sets of the ONNX form of {title} differ from those of the run in "
            f"{changed:,} of {expected.size:,} labels; nothing was written."
        )
    return changed
