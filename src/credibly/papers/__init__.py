"""The four papers: for each its protocols, and ``datasets`` with a reader per published data set.

===========  =====================================================================================
spa          Towards Calibrated Multi-label Deep Neural Networks: SPA, label pairs
quasibinary  Quasibinary Classifier for Images with Zero and Multiple Labels
two_way      Two-way Multi-Label Loss
average_k    A Two-Head Loss Function for Deep Average-K Classification
===========  =====================================================================================

>>> import credibly as cr
>>> cr.papers.preset("avgk-plantnet").settings["learning_rate"]
0.002
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.papers import average_k, quasibinary, spa, two_way
from credibly.papers.protocol import Preset
from credibly.papers.tables import Table

if TYPE_CHECKING:
    from credibly.papers.checkpoints import convert_checkpoint
    from credibly.papers.datasets.vqa import vqa_counts
    from credibly.papers.single_positive import hide_labels

__all__ = [
    "PRESETS",
    "Preset",
    "Table",
    "average_k",
    "convert_checkpoint",
    "hide_labels",
    "preset",
    "quasibinary",
    "spa",
    "two_way",
    "vqa_counts",
]

PRESETS: dict[str, Preset] = {
    **spa.PRESETS,
    **quasibinary.PRESETS,
    **two_way.PRESETS,
    **average_k.PRESETS,
}
"""The protocols of all papers by name."""


def preset(name: str) -> Preset:
    """Return a paper's protocol.

    Example:
        >>> preset("avgk-cifar100").loss("an")
        'an+published'
        >>> preset("spa-voc")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: unknown preset 'spa-voc'. Did you mean 'spa-coco'?
    """
    from credibly.checks import InputError, nearest

    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}. {nearest(name, PRESETS)}")
    return PRESETS[name]


_WHERE = {
    "convert_checkpoint": "checkpoints",
    "hide_labels": "single_positive",
    "vqa_counts": "datasets.vqa",
}


def __getattr__(name: str) -> Any:
    if name == "vqa":
        return import_module("credibly.papers.vqa")
    if name in _WHERE:  # imported when asked for: the command line needs the presets alone
        return getattr(import_module(f"credibly.papers.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'credibly.papers' has no attribute {name!r}")
