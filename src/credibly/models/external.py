"""Backbones of other libraries, by name: timm and Hugging Face transformers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from credibly.checks import InputError, nearest
from credibly.data.parsing import read_json
from credibly.models.network import Standardize
from credibly.names import check_library

PRETRAINED = "pretrained"
"""Instead of a file: the weights that the library itself has for this name."""


def library(name: str, model: str) -> Any:
    """Import the library ``name``, which ``model`` needs."""
    check_library(model)
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"`model` {model} needs {name}; it is installed but cannot be imported ({error}). "
            "Install it again."
        ) from error


def timm_backbone(
    name: str, shape: tuple[int, ...], weights: str | Path | None, standardize: Standardize
) -> nn.Module:
    """A timm model without its classifier; inputs are standardised as its weights expect."""
    timm = library("timm", f"timm:{name}")
    if not timm.is_model(name):
        raise InputError(f"timm has no model {name!r}. {nearest(name, timm.list_models())}")
    settings: dict[str, Any] = {"num_classes": 0, "in_chans": shape[0]}
    settings["pretrained"] = weights == PRETRAINED
    try:
        try:
            backbone = timm.create_model(name, img_size=shape[1:], **settings)
        except TypeError:  # networks that take any size have no such argument
            backbone = timm.create_model(name, **settings)
    except Exception as error:  # a download fails in many ways
        if weights != PRETRAINED:
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
    """A vision model of transformers: fresh from the config of ``name``, or with local weights.

    ``name`` is a folder with a ``config.json``, or a model in the local cache; nothing is
    downloaded, no code of the model's own is run, and only safetensors weights are read.
    """
    transformers = library("transformers", f"hf:{name}")
    where = {"local_files_only": True, "trust_remote_code": False}
    try:
        if weights is None:
            config = transformers.AutoConfig.from_pretrained(name, **where)
            model = transformers.AutoModel.from_config(config)
        else:
            folder = name if weights == PRETRAINED else str(weights)
            model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, **where)
    except (OSError, ValueError) as error:
        raise InputError(
            f"hf:{name} must be a folder with config.json (and model.safetensors for its weights), "
            f"or in the local cache; {error}"
        ) from error
    preprocessing = Path(name) / "preprocessor_config.json"
    if preprocessing.exists():
        found = read_json(preprocessing)
        mean, std = found.get("image_mean"), found.get("image_std")
        if mean and std and len(mean) == shape[0]:
            standardize.set(mean, std)
    return Pooled(model)


class Pooled(nn.Module):
    """One vector per image: the model's own pooling, its first token, or the mean over places."""

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
    """Weights from a ``.safetensors`` file; those of a classifier or head are left out."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(
            f"`weights` must be a .safetensors file; got {path}. Files of torch.save can run any "
            "code when read; convert one you trust with safetensors.torch.save_file."
        )
    if not path.exists():
        raise InputError(f"`weights`: {path} does not exist.")
    try:
        state = load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} must be a safetensors file; {error}.") from None
    ours = {key.removeprefix("backbone."): v for key, v in state.items() if "backbone." in key[:9]}
    state = ours or state
    wanted = backbone.state_dict()
    for key, value in wanted.items():
        if key not in state:
            raise InputError(f"{path} has no {key!r}, which {name} needs. Is it of another model?")
        if state[key].shape != value.shape:
            raise InputError(
                f"{path}: {key!r} must have shape {tuple(value.shape)}; got "
                f"{tuple(state[key].shape)}. Is it of another model?"
            )
    backbone.load_state_dict({key: state[key] for key in wanted})


def output_size(backbone: nn.Module, shape: tuple[int, ...], name: str) -> int:
    """Width of what the backbone puts out, by trying it on one blank image."""
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
        raise InputError(f"{name} must give one vector an image; got {tuple(features.shape)}.")
    return features.shape[1]
