"""The names that the command line and configuration files accept, without importing numpy or torch.

A misspelt name is reported at once. Tests compare each table with the package it describes.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

LOSSES: dict[str, str] = {
    "an": "AssumeNegative",
    "asl": "Asymmetric",
    "asl-single": "AsymmetricSingleLabel",
    "avgk": "AverageK",
    "bce": "BCE",
    "ce": "Softmax",
    "epr": "ExpectedPositive",
    "focal": "Focal",
    "joint": "JointMixture",
    "quasibinary": "Quasibinary",
    "rml": "RobustMultiLabel",
    "role": "OnlineEstimation",
    "softmax": "Softmax",
    "spa": "SPA",
    "topk": "BalancedTopK",
    "twl": "TwoWay",
    "warp": "Warp",
}
"""Names and aliases of the losses, and their classes in ``credibly.losses``."""

SUFFIXES: tuple[str, ...] = ("lpr", "twl", "published")
"""Terms that may follow a loss after a '+'."""

CALIBRATORS: tuple[str, ...] = (
    "none",
    "temperature",
    "affine",
    "beta",
    "per-label",
    "isotonic",
)
"""Names of the calibrators of labels on their own, from the simplest to the most flexible."""

METHODS: tuple[str, ...] = ("auto", *CALIBRATORS, "softmax-temperature", "vector")
"""How to calibrate: auto chooses on left-out rows; the last two keep a softmax's rows at sum 1."""

_NETWORKS = "credibly.papers.networks"
NETWORKS: dict[str, str] = {
    "resnet20-32": f"{_NETWORKS}:resnet20",
    "resnet18-32": f"{_NETWORKS}:resnet18",
    "vgg16": f"{_NETWORKS}:VGG16",
    "densenet40-12": f"{_NETWORKS}:densenet40_12",
    "densenet40-40": f"{_NETWORKS}:densenet40_40",
    "densenet-bc40-40": f"{_NETWORKS}:densenet_bc40_40",
}
"""Networks of the papers for small images: from the number of channels to a backbone."""

PRETRAINED = "pretrained"
"""Instead of a file: the weights that the library itself has for this name."""

MODELS: tuple[str, ...] = (
    "linear",
    "mlp",
    "forest",
    "boosting",
    "tfidf",
    "cnn",
    *NETWORKS,
    "efficientnet-lite0",
)
"""Names of the built-in networks of ``credibly.models``."""

MODEL_PREFIXES: tuple[str, ...] = ("timm:", "hf:", "python:")
"""What names of networks from elsewhere begin with."""

LIBRARIES: dict[str, tuple[str, str]] = {
    "timm:": ("timm", "pip install 'credibly[vision]'"),
    "hf:": ("transformers", "pip install transformers"),
}
"""By prefix of a network's name: the library that has the network, and how to install it."""

_DATASETS = "credibly.papers.datasets"
READERS: dict[str, str] = {
    "coco": f"{_DATASETS}.coco:read_coco",
    "voc": f"{_DATASETS}.voc:read_voc",
    "wider": f"{_DATASETS}.attributes:read_wider",
    "vispr": f"{_DATASETS}.attributes:read_vispr",
    "nuswide": f"{_DATASETS}.nuswide:read_nuswide",
    "cifar10": f"{_DATASETS}.cifar:read_cifar10",
    "cifar100": f"{_DATASETS}.cifar:read_cifar100",
    "cifar60+40": f"{_DATASETS}.cifar:read_cifar60_40",
    "tinyimagenet": f"{_DATASETS}.class_images:read_tinyimagenet",
    "plantnet": f"{_DATASETS}.class_images:read_plantnet",
    "aircraft": f"{_DATASETS}.transfer:read_aircraft",
    "caltech101": f"{_DATASETS}.transfer:read_caltech101",
    "cars": f"{_DATASETS}.transfer:read_cars",
    "cub": f"{_DATASETS}.transfer:read_cub",
    "dtd": f"{_DATASETS}.transfer:read_dtd",
    "flowers": f"{_DATASETS}.transfer:read_flowers",
    "food101": f"{_DATASETS}.transfer:read_food101",
    "pets": f"{_DATASETS}.transfer:read_pets",
    "sun397": f"{_DATASETS}.transfer:read_sun397",
    "vqa": f"{_DATASETS}.vqa:read_vqa",
}
"""Readers of the papers' data sets, as pyproject.toml declares them in ``credibly.readers``."""

LOSS_PART = re.compile(r"\s*(?P<name>[\w-]+)\s*(?:\((?P<arguments>.*)\))?\s*")


def split_loss(name: str) -> list[str]:
    """Return the parts of the name of a loss, split at '+' signs outside of brackets.

    Example:
        >>> split_loss("spa(scale_neg=1e+1)+lpr")
        ['spa(scale_neg=1e+1)', 'lpr']
    """
    return re.split(r"\+(?![^(]*\))", name)


def check_loss(name: str) -> None:
    """Raise if ``cr.losses.from_name`` would refuse the loss or the suffix of this name.

    Arguments in parentheses are not checked.

    Example:
        >>> check_loss("spa(scale_neg=10)+lpr")
        >>> check_loss("sap")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: unknown loss 'sap'. Did you mean 'spa'?
    """
    from credibly.checks import InputError, nearest

    first, *rest = split_loss(name[:1000])
    match = LOSS_PART.fullmatch(first)
    if match is not None and match[1].lower() not in LOSSES:
        raise InputError(f"unknown loss {match[1]!r}. {nearest(match[1].lower(), LOSSES)}")
    for part in rest:
        match = LOSS_PART.fullmatch(part)
        if match is not None and match[1].lower() not in SUFFIXES:
            known = " or ".join(SUFFIXES)
            raise InputError(f"after '+' only {known} can stand; got {match[1]!r} in {name!r}.")


def check_model(name: str) -> None:
    """Raise if a name is not a built-in network and has no known prefix.

    Example:
        >>> check_model("timm:resnet50")
        >>> check_model("mpl")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `model` must be a known network; got 'mpl'. Did you mean 'mlp'?
    """
    from credibly.checks import InputError, nearest

    if name not in MODELS and not name.startswith(MODEL_PREFIXES):
        known = [*MODELS, *(f"{prefix}NAME" for prefix in MODEL_PREFIXES)]
        raise InputError(f"`model` must be a known network; got {name!r}. {nearest(name, known)}")


def check_library(model: str) -> None:
    """Raise if a network needs a library that is not installed.

    Example:
        >>> check_library("mlp")
    """
    from credibly.checks import InputError

    for prefix, (library, install) in LIBRARIES.items():
        if model.startswith(prefix) and find_spec(library) is None:
            raise InputError(
                f"`model` {model} needs {library}; it is not installed. Run: {install}. Or choose "
                "a built-in network: --model efficientnet-lite0 --weights FILE.safetensors (or "
                "--weights none)."
            )
