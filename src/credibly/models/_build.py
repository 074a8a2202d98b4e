"""From a model's name to the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from credibly import _checks
from credibly._checks import InputError, nearest
from credibly.data import Data
from credibly.data._torch import DEFAULT_SIZE
from credibly.models._network import Network, Standardize

MODELS = ("linear", "mlp", "cnn")
"""Names for ``build``; NAME stands for one of that library's."""

DROPOUT = {"linear": 0.0, "mlp": 0.5, "cnn": 0.2}
HIDDEN = {"mlp": 512, "cnn": 16}
"""What ``dropout`` and ``hidden`` are when not given."""


def build(
    name: str,
    inputs: Data | Sequence[int],
    num_labels: int | None = None,
    scores_per_label: int = 1,
    *,
    dropout: float | None = None,
    hidden: int | None = None,
    frozen: bool = False,
    weights: str | Path | None = None,
    image_size: int | None = None,
) -> Network:
    """A model by name, its standardisation fitted on the training rows of ``inputs``.

    Args:
        name: ``linear``, ``mlp``, ``cnn``, ``densenet40-40``, ``timm:NAME`` or ``hf:NAME``.
        inputs: the data, or the shape of one input, (features,) or (channels, height, width).
            By shape, the standardisation starts as the identity, for weights to be loaded.
        num_labels: number of labels; that of the data if not given.
        scores_per_label: ``loss.scores_per_label``.
        dropout: before the head; the default depends on the model.
        hidden: width of ``mlp``'s hidden layer or of ``cnn``'s first stage.
        frozen: train the head alone.
        weights: a local ``.safetensors`` file (or folder, for ``hf:``) for the backbone.
        image_size: side of the images, where they come from files.

    Example:
        >>> build("linear", (3,), num_labels=2, scores_per_label=2).head
        Linear(in_features=3, out_features=4, bias=True)
    """
    shape = _shape(inputs, image_size)
    if num_labels is None:
        if not isinstance(inputs, Data):
            raise InputError("`num_labels` must be given when the model is built by input shape.")
        num_labels = inputs.num_labels
    num_scores = int(_checks.at_least("num_labels", num_labels, 1)) * scores_per_label
    dropout = DROPOUT.get(name, 0.0) if dropout is None else dropout
    _checks.fraction("dropout", dropout, high_open=True)
    standardize = Standardize(shape[0])
    if isinstance(inputs, Data):
        _fit(standardize, inputs)
    backbone, width = _backbone(name, shape, hidden, dropout, weights, standardize)
    return Network(
        name, shape, standardize, backbone, width, num_scores, dropout=dropout, frozen=frozen
    )


def _shape(inputs: Data | Sequence[int], image_size: int | None) -> tuple[int, ...]:
    if isinstance(inputs, Data):
        shape = inputs.input_shape or (3, DEFAULT_SIZE, DEFAULT_SIZE)
        inputs = shape if image_size is None or len(shape) == 1 else (shape[0], *[image_size] * 2)
    shape = tuple(int(side) for side in inputs)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise InputError(
            f"an input must have shape (features,) or (channels, height, width); got {shape}."
        )
    return shape


def _fit(standardize: Standardize, data: Data) -> None:
    train = data.part("train")
    train = train if len(train) else data
    if train.features is not None:
        standardize.fit(train.features)
    elif isinstance(train.images, np.ndarray):
        # A thousand images fix a channel's mean and deviation well enough.
        sample = train.images[:: max(1, len(train) // 1000)]
        standardize.fit(sample.reshape(-1, sample.shape[3]) / np.float32(255))


def _backbone(
    name: str,
    shape: tuple[int, ...],
    hidden: int | None,
    dropout: float,
    weights: Any,
    standardize: Standardize,
) -> tuple[nn.Module, int]:
    from credibly.models import _small

    if name in ("linear", "mlp"):
        return _flat(name, shape, hidden, dropout)
    if name == "cnn":
        _images_only(name, shape)
        backbone = _small.Convolutions(shape[0], hidden or HIDDEN["cnn"])
        return backbone, backbone.num_features
    raise InputError(
        f"`model` must be one of {', '.join(MODELS)}; got {name!r}. {nearest(name, MODELS)}"
    )


def _flat(
    name: str, shape: tuple[int, ...], hidden: int | None, dropout: float
) -> tuple[nn.Module, int]:
    from credibly.models import _small

    size = int(np.prod(shape))
    if name == "linear":
        return nn.Flatten(), size
    width = hidden or HIDDEN["mlp"]
    return nn.Sequential(nn.Flatten(), _small.hidden_layer(size, width, dropout)), width


def _images_only(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise InputError(f"{name} takes images; the data hold {shape[0]} features. Use mlp.")
