"""Train models: resume, calibrate, predict and export runs.

    run = cr.train.fit(cr.data.load("digits"), cr.train.Network(), folder="runs/x")
    run.predict(images).probabilities

A run is a model with the pipeline from its scores to label sets. A run in a folder is opened by
``load``. Importing this package does not import torch.

==================  ==========================================================================
module              content
==================  ==========================================================================
recipes             ``Auto``, ``Linear``, ``Network`` …: how to train
defaults            ``resolve``: the defaults that depend on the data; checks against the data
fitting             ``fit``: build, train, calibrate and measure, from data to a trained run
linear              the solver of every linear model; folds; the last layer first (LP-FT)
auto                models for features, compared on rows they did not see
training_loop       ``Trainer``: gradient steps, from the first or a checkpoint to the last
distributed         batches; one loss over all processes; scores and metrics of rows
extreme_classif…    runs on very many labels, of which rows keep the most probable
run_folder          the files of a run: configuration, checkpoints, log, checksums
run                 a trained run: load it, predict with it; its model and loss by name
prediction, onnx    predictions of many rows in parts; export
==================  ==========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING

from credibly.train.recipes import (
    Auto,
    Ensemble,
    Linear,
    Network,
    Probe,
    Recipe,
    TextLinear,
    Trees,
    recipe,
)

if TYPE_CHECKING:
    from credibly.train.callbacks import Callback
    from credibly.train.defaults import resolve
    from credibly.train.fitting import fit
    from credibly.train.onnx import export
    from credibly.train.run import Run
    from credibly.train.run import load as load
    from credibly.train.run_folder import read_log

__all__ = [
    "Auto",
    "Callback",
    "Ensemble",
    "Linear",
    "Network",
    "Probe",
    "Recipe",
    "Run",
    "TextLinear",
    "Trees",
    "export",
    "fit",
    "read_log",
    "recipe",
    "resolve",
]

# No module has the name of a function: importing it would replace the function by the module.
_MODULES = {
    **dict.fromkeys(("Run", "load"), "run"),
    "Callback": "callbacks",
    "export": "onnx",
    "fit": "fitting",
    "read_log": "run_folder",
    "resolve": "defaults",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'credibly.train' has no attribute {name!r}")
    from credibly.checks import require  # it imports numpy, and --help must not

    require("train", "accelerate", "safetensors", "PIL")
    globals()[name] = found = getattr(import_module(f"credibly.train.{_MODULES[name]}"), name)
    return found
