"""Build models by name: built-in networks, and backbones of timm and transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly import checks, names
from credibly.checks import InputError, nearest
from credibly.data import Data, SparseRows
from credibly.data.torch_datasets import DEFAULT_SIZE
from credibly.models import efficientnet
from credibly.models.network import (
    LIMIT,
    SPARSE,
    VIEWS,
    Dropout,
    Flatten,
    NetworkModule,
    SparseLinear,
    Standardize,
)
from credibly.models.trees import TREES
from credibly.names import check_library
from credibly.types import JsonObject
from credibly.untrusted.budget import check_file, first_line
from credibly.untrusted.documents import read_json
from credibly.untrusted.tensors import load_safetensors

PRETRAINED = "pretrained"
"""Instead of a file: the weights that the library itself has for this name."""


def library(name: str, model: str) -> ModuleType:
    """Import the library ``name``, which ``model`` needs."""
    check_library(model)
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision for another torch
        raise InputError(
            f"`model` {model} needs {name}. It is installed but cannot be imported ({error}). "
            f"Reinstall it (and torchvision, if the error names it) for torch {torch.__version__}."
        ) from error


def timm_backbone(
    name: str, shape: tuple[int, ...], weights: str | Path | None, standardize: Standardize
) -> nn.Module:
    """Return a timm model without its classifier. Inputs are standardised as its weights expect."""
    timm = library("timm", f"timm:{name}")
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}. {nearest(name, timm.list_models())}")
    pretrained = weights == PRETRAINED
    settings: JsonObject = {"num_classes": 0, "in_chans": shape[0], "pretrained": pretrained}
    try:
        try:
            backbone = timm.create_model(name, img_size=shape[1:], **settings)
        except TypeError:  # networks for any input size have no such argument
            backbone = timm.create_model(name, **settings)
    except Exception as error:  # a download can fail in many ways
        if not pretrained:
            raise
        raise InputError(
            f"`weights` pretrained needs the ImageNet weights of timm:{name}, which timm "
            f"downloads; that failed ({type(error).__name__}: {error}). Download them on another "
            "machine and give the file: --weights FILE.safetensors. To start from random weights: "
            "--weights none."
        ) from error
    mean, std = backbone.pretrained_cfg["mean"], backbone.pretrained_cfg["std"]
    if len(mean) == shape[0]:
        standardize.set(mean, std)
    return backbone


def huggingface_backbone(
    name: str, shape: tuple[int, ...], weights: str | Path | None, standardize: Standardize
) -> nn.Module:
    """Return a vision model of transformers, fresh from the config of ``name`` or with weights.

    ``name`` is a folder with a ``config.json``, or a model in the local cache. Nothing is
    downloaded, no code of the model is run, and only safetensors weights are read.
    """
    transformers = library("transformers", f"hf:{name}")
    source = name if weights == PRETRAINED else weights
    config = huggingface_config(transformers, name, f"hf:{name}")
    model = huggingface_model(transformers, config, source, f"hf:{name}")
    preprocessing = Path(name) / "preprocessor_config.json"
    if preprocessing.exists():
        found = read_json(preprocessing)
        mean, std = found.get("image_mean"), found.get("image_std")
        if mean and std and len(mean) == shape[0]:
            standardize.set(mean, std)
    return Pooled(model)


def huggingface_config(transformers: ModuleType, folder: str, name: str) -> Any:
    """Return the config of a folder or of a model in the local cache, without running its code."""
    for file in Path(folder).glob("*") if Path(folder).is_dir() else ():
        if file.suffix in (".json", ".txt", ".model"):  # including the files of a tokenizer
            check_file(file, "tokenizer")
        elif file.suffix == ".safetensors":
            check_file(file, "safetensors")
    try:
        return transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{name} must be a folder with config.json, or in the local cache; {first_line(error)}."
        ) from error


def huggingface_model(
    transformers: ModuleType, config: Any, weights: str | Path | None, name: str
) -> nn.Module:
    """Return a fresh model of this config, or one with the safetensors weights of a folder."""
    if weights is None:
        return transformers.AutoModel.from_config(config)
    try:
        return transformers.AutoModel.from_pretrained(
            str(weights), use_safetensors=True, local_files_only=True, trust_remote_code=False
        ).float()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`weights` of {name} must be a folder with model.safetensors that fits its config; "
            f"{first_line(error)}."
        ) from error


class Pooled(nn.Module):
    """One vector per image: the model's pooling, its first token, or the mean over positions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(pixel_values=images)
        pooled = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        hidden = found.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden.mean(dim=(2, 3))


def load_weights(backbone: nn.Module, path: str | Path, name: str) -> None:
    """Load weights from a ``.safetensors`` file, without those of a classifier or head."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(
            f"`weights` must be a .safetensors file; got {path}. Files of torch.save can run any "
            "code when read; convert one you trust with safetensors.torch.save_file."
        )
    if not path.exists():
        raise InputError(f"`weights`: {path} does not exist.")
    state, _ = load_safetensors(path)
    start = "backbone."
    ours = {key.removeprefix(start): v for key, v in state.items() if key.startswith(start)}
    state = ours or state
    wanted = backbone.state_dict()
    for key, value in wanted.items():
        if key not in state:
            raise InputError(
                f"{path} has no {key!r}, which {name} needs. It may belong to another model."
            )
        if state[key].shape != value.shape:
            raise InputError(
                f"{path}: {key!r} must have shape {tuple(value.shape)}; got "
                f"{tuple(state[key].shape)}. It may belong to another model."
            )
    backbone.load_state_dict({key: state[key] for key in wanted})


def output_size(backbone: nn.Module, shape: tuple[int, ...], name: str) -> int:
    """Return the width of the backbone's output, found with one blank image."""
    training = backbone.training
    backbone.eval()
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(1, *shape))
    except (RuntimeError, AssertionError, ValueError) as error:
        side = "×".join(map(str, shape[1:]))
        raise InputError(f"{name} cannot take images of {side} pixels: {error}") from error
    finally:
        backbone.train(training)
    if features.ndim != 2:
        raise InputError(f"{name} must give one vector per image; got {tuple(features.shape)}.")
    return features.shape[1]


# From a name to the model -----------------------------------------------------------------------

OUTSIDE = {"timm": timm_backbone, "hf": huggingface_backbone}

CONVOLUTIONAL = (*names.NETWORKS, "efficientnet-lite0")
"""Networks for images."""

MODELS = ("linear", "mlp", *TREES, "tfidf", "cnn", *CONVOLUTIONAL, "timm:NAME", "hf:NAME")
"""Names for ``build``; NAME stands for one of that library's."""

INPUTS = {"efficientnet-lite0": (efficientnet.INPUT_MEAN, efficientnet.INPUT_SCALE)}
"""Mean and scale of the pixels that published weights of a network expect."""

DROPOUT = {"linear": 0.0, "mlp": 0.5, "cnn": 0.2, "efficientnet-lite0": 0.2}
SMALLEST = {"vgg16": 32, "efficientnet-lite0": 32}
"""Fewest pixels per side; 4 for the other convolutional networks."""

HIDDEN = {"mlp": 512, "cnn": 16}
"""What ``dropout`` and ``hidden`` are when not given."""


def build(
    name: str,
    inputs: Data | Sequence[int],
    num_labels: int | None = None,
    *,
    num_outputs: int | None = None,
    dropout: float | None = None,
    hidden: int | None = None,
    frozen: bool = False,
    weights: str | Path | None = None,
    image_size: int | None = None,
    fixed_norms: bool = False,
    views: str = "one",
) -> NetworkModule:
    """Build a model by name, with its standardisation fitted on the training rows of ``inputs``.

    Args:
        name: one of ``MODELS``; see docs/guide/training.md.
        inputs: the data, or the shape of one input, (features,) or (channels, height, width).
            With a shape, the standardisation is the identity until weights are loaded.
        num_labels: number of labels; by default that of the data.
        num_outputs: ``loss.num_outputs(num_labels)``, for losses with more than one score per
            label.
        dropout: before the head; the default depends on the model.
        hidden: width of the hidden layer of ``mlp`` or of the first stage of ``cnn``.
        frozen: train only the head.
        weights: weights of the backbone: a local ``.safetensors`` file (for ``hf:`` a folder);
            ``"pretrained"`` for those that the library has under this name; ``"auto"`` for the
            ImageNet weights of ``efficientnet-lite0`` that ``credibly[images]`` installs.
        image_size: side of the images, if they are read from files.
        fixed_norms: keep the statistics of batch norms in training, for small batches.
        views: ``one``; ``flip`` or ``crops`` average the scores of several views of an image in
            evaluation mode.

    Example:
        >>> build("linear", (3,), num_labels=2, num_outputs=4).head
        SparseLinear(in_features=3, out_features=4, bias=True)
    """
    _not_texts(name, inputs)
    if name in TREES:
        raise InputError(f"{name} is not a network. Choose it with `--model` or a recipe.")
    shape = _shape(inputs, image_size)
    if num_labels is None:
        if not isinstance(inputs, Data):
            raise InputError("`num_labels` must be given when the model is built by input shape.")
        num_labels = inputs.num_labels
    num_labels = int(checks.at_least("num_labels", num_labels, 1))
    num_scores = num_labels if num_outputs is None else num_outputs
    dropout = DROPOUT.get(name, 0.0) if dropout is None else dropout
    checks.fraction("dropout", dropout, high_open=True)
    if isinstance(inputs, Data) and inputs.sparse_features is not None:
        _check_sparse(name, shape, num_scores if name == "linear" else hidden or HIDDEN["mlp"])
    standardize = Standardize(shape[0])
    if isinstance(inputs, Data):
        _fit(standardize, inputs)
    if checks.choice("views", views, VIEWS) != "one":
        _images_only(f"`views` {views}", shape)
    backbone, width = _backbone(name, shape, hidden, dropout, weights, standardize)
    network = NetworkModule(
        name,
        shape,
        standardize,
        backbone,
        width,
        num_scores,
        dropout=dropout,
        frozen=frozen,
        fixed_norms=fixed_norms,
        views=views,
    )
    if isinstance(inputs, Data) and inputs.sparse_features is not None:
        train = inputs.part("train").sparse_features
        _start_sparse(
            network, train if train is not None and len(train) else inputs.sparse_features
        )
    return network


def _check_sparse(name: str, shape: tuple[int, ...], outputs: int) -> None:
    if name not in SPARSE:
        raise InputError(
            f"`model` {name} takes dense inputs; the data hold {shape[0]:,} sparse features. Use "
            f"{' or '.join(SPARSE)}."
        )
    # Weights, gradient and two moments of the optimizer.
    checks.fits_memory(f"the first layer of {name}", shape[0], outputs, itemsize=16)


@torch.no_grad()
def _start_sparse(network: NetworkModule, rows: SparseRows) -> None:
    """Scale the first weights for the non-zero values of a row, because most columns are zero.

    The weights of columns without training rows start at 0, and so do all weights of ``linear``:
    the data contain no information about them.
    """
    filled = max(rows.matrix.nnz / max(len(rows), 1), 1.0)
    seen = np.bincount(rows.matrix.indices, minlength=rows.shape[1]) > 0
    first = next(each for each in network.modules() if isinstance(each, SparseLinear))
    scale = 0.0 if network.name == "linear" else (rows.shape[1] / filled) ** 0.5
    first.weight.mul_(torch.from_numpy(np.where(seen, scale, 0.0).astype(np.float32)))


def _not_texts(name: str, inputs: Data | Sequence[int]) -> None:
    if name == "tfidf" or (isinstance(inputs, Data) and inputs.texts is not None):
        what = inputs.kind if isinstance(inputs, Data) else f"inputs of shape {tuple(inputs)}"
        if what.startswith("text"):
            raise InputError(
                "networks for texts are built from the texts they train on; use `cr.train.fit`."
            )
        raise InputError(f"tfidf takes texts; the data hold {what}. Use mlp or linear.")


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
        standardize.fit(train.features, LIMIT)
    elif train.sparse_features is not None:
        standardize.fit_sparse(train.sparse_features, LIMIT)
    elif isinstance(train.images, np.ndarray):
        # A thousand images determine the mean and deviation of a channel well enough.
        sample = train.images[:: max(1, len(train) // 1000)]
        standardize.fit(sample.reshape(-1, sample.shape[3]) / np.float32(255))


def _backbone(
    name: str,
    shape: tuple[int, ...],
    hidden: int | None,
    dropout: float,
    weights: str | Path | None,
    standardize: Standardize,
) -> tuple[nn.Module, int]:
    kind, _, inner = name.partition(":")
    if name in ("linear", "mlp"):
        backbone, width = _flat(name, shape, hidden, dropout)
    elif name == "cnn" or name in CONVOLUTIONAL:
        backbone, width = _convolutional(name, shape, hidden)
        if name in INPUTS:
            mean, scale = INPUTS[name]
            standardize.set(np.full(shape[0], mean), np.full(shape[0], scale))
    elif kind in OUTSIDE and inner:
        _images_only(name, shape)
        backbone = OUTSIDE[kind](inner, shape, weights, standardize)
        width = output_size(backbone, shape, name)
        weights = None if kind == "hf" or weights == PRETRAINED else weights
    else:
        known = ", ".join(MODELS)
        raise InputError(f"`model` must be one of {known}; got {name!r}. {nearest(name, MODELS)}")
    if weights == "auto":
        if name != "efficientnet-lite0":
            raise InputError(
                f"`weights` auto means the ImageNet weights of efficientnet-lite0; got {name}. "
                "Give a file, or for networks of timm and transformers `weights` pretrained."
            )
        backbone.load_state_dict(efficientnet.published_weights())
        return backbone, width
    if weights == PRETRAINED and kind not in OUTSIDE:
        raise InputError(
            "`weights` pretrained stands for weights that timm or transformers have; the built-in "
            f"{name} comes without. Give a file, --weights FILE.safetensors, for "
            "efficientnet-lite0 auto, or start from random weights, --weights none."
        )
    if weights is not None:
        load_weights(backbone, weights, name)
    return backbone, width


def _flat(
    name: str, shape: tuple[int, ...], hidden: int | None, dropout: float
) -> tuple[nn.Module, int]:
    size = int(np.prod(shape))
    if name == "linear":
        return Flatten(), size
    width = HIDDEN["mlp"] if hidden is None else int(checks.at_least("hidden", hidden, 1))
    return nn.Sequential(Flatten(), hidden_layer(size, width, dropout)), width


def _convolutional(name: str, shape: tuple[int, ...], hidden: int | None) -> tuple[nn.Module, int]:
    _images_only(name, shape)
    if name == "cnn":
        width = HIDDEN["cnn"] if hidden is None else int(checks.at_least("hidden", hidden, 1))
        backbone = Convolutions(shape[0], width)
    else:
        # A third faster on CPUs, and the layout that tensor cores prefer.
        backbone = _image_network(name)(shape[0]).to(memory_format=torch.channels_last)
    smallest = SMALLEST.get(name, 4)
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{name} takes images of at least {smallest} × {smallest} pixels; got {shape[1:]}. "
            f"Give `image_size` {smallest} or more."
        )
    return backbone, backbone.num_features


def _image_network(name: str) -> Callable[[int], Any]:
    """Return the function that builds the network from the number of channels."""
    if name == "efficientnet-lite0":
        return efficientnet.EfficientNetLite0
    module, _, function = names.NETWORKS[name].partition(":")
    return getattr(import_module(module), function)


def _images_only(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise InputError(f"{name} takes images; the data hold {shape[0]} features. Use mlp.")


def hidden_layer(inputs: int, hidden: int, dropout: float) -> nn.Module:
    """Return the backbone of ``mlp``. The dropout on its inputs is half of that before the head."""
    return nn.Sequential(Dropout(dropout / 2), SparseLinear(inputs, hidden), nn.ReLU())


class Convolutions(nn.Module):
    """Five 3×3 convolutions, of which the second and fourth halve the side; then mean and maximum.

    Group normalisation is used instead of batch normalisation. The scores of a row then do not
    depend on its batch, and any number of processes gives the same gradients. The maximum over
    positions detects whether a digit is present anywhere; the mean measures how much of it there
    is.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, stride in ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            wide *= width
            layers += [
                nn.Conv2d(channels, wide, 3, stride=stride, padding=1, bias=False),
                nn.GroupNorm(groups(wide), wide),
                nn.ReLU(inplace=True),
            ]
            channels = wide
        self.layers = nn.Sequential(*layers)
        self.num_features = 2 * channels

    def forward(self, images: Tensor) -> Tensor:
        maps = self.layers(images)
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


def groups(channels: int) -> int:
    """Return the number of groups to normalise in: of eight channels if that divides, else one."""
    return channels // 8 if channels % 8 == 0 else 1
