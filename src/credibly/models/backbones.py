"""Backbones for images: a small network, and those of timm and transformers, with their weights."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from credibly.checks import InputError, nearest
from credibly.names import PRETRAINED, check_library
from credibly.types import JsonObject
from credibly.untrusted.budget import check_file, first_line
from credibly.untrusted.documents import read_json
from credibly.untrusted.tensors import load_safetensors

if TYPE_CHECKING:
    from credibly.models.network import Standardize


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
                nn.GroupNorm(wide // 8 if wide % 8 == 0 else 1, wide),  # of eight channels, or one
                nn.ReLU(inplace=True),
            ]
            channels = wide
        self.layers = nn.Sequential(*layers)
        self.num_features = 2 * channels

    def forward(self, images: Tensor) -> Tensor:
        maps = self.layers(images)
        return torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1)


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
