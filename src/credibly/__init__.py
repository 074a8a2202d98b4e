"""credibly: classifiers whose inputs carry zero, one or many labels, with probabilities to act on.

    data ─► scores ─► loss                                   (training)
               └────► link ─► probabilities ─► decide   ─► label sets ─┐
                        (calibrate)         └► retrieve ─► ranking ────┴─► metrics ─► report

Each arrow is a package of its own; packages are imported when first used, so that
``import credibly`` and ``credibly --help`` stay instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

_NAMES = {
    "InputError": "credibly.checks",
    "Pipeline": "credibly.pipeline",
    "Predictions": "credibly.predictions",
    "CalibratedMultiLabel": "credibly.estimators",
    "CredibleClassifier": "credibly.estimators",
    "load": "credibly.train",
    "calibrate_scores": "credibly.workflows",
    "compare": "credibly.workflows",
    "evaluate": "credibly.workflows",
    "write_sets": "credibly.workflows",
}

__all__ = [
    "CalibratedMultiLabel",
    "CredibleClassifier",
    "InputError",
    "Pipeline",
    "Predictions",
    "app",
    "calibrate",
    "calibrate_scores",
    "compare",
    "data",
    "decide",
    "evaluate",
    "integrations",
    "load",
    "losses",
    "metrics",
    "models",
    "papers",
    "plot",
    "retrieve",
    "review",
    "runtime",
    "train",
    "workflows",
    "write_sets",
]
_PACKAGES = set(__all__) - set(_NAMES)

if TYPE_CHECKING:
    from credibly import (
        app,
        calibrate,
        data,
        decide,
        integrations,
        losses,
        metrics,
        models,
        papers,
        plot,
        retrieve,
        review,
        runtime,
        train,
        workflows,
    )
    from credibly.checks import InputError
    from credibly.estimators import CalibratedMultiLabel, CredibleClassifier
    from credibly.pipeline import Pipeline
    from credibly.predictions import Predictions
    from credibly.train import load
    from credibly.workflows import calibrate_scores, compare, evaluate, write_sets


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"credibly.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'credibly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
