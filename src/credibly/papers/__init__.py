"""The four papers: their protocols and tables, and readers of published data sets.

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

from credibly.papers import average_k, quasibinary, spa, two_way
from credibly.papers.protocol import Preset

__all__ = [
    "average_k",
    "preset",
    "quasibinary",
    "spa",
    "two_way",
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


def __getattr__(name: str) -> object:
    if name == "vqa":
        return import_module("credibly.papers.vqa")
    raise AttributeError(f"module 'credibly.papers' has no attribute {name!r}")
