"""From data to credible predictions: train, resume, calibrate, predict, export.

    run = cr.train.fit(cr.data.load("digits"), cr.train.Network(loss="spa+lpr"), folder="runs/x")
    run.predict(images).probabilities

A run is a model with the pipeline from its scores to label sets; in a folder, ``load`` opens it
again. Importing this package does not import torch.

==================  ==========================================================================
module              what it holds
==================  ==========================================================================
recipes             ``Auto``, ``Linear``, ``Network`` …: how to train
fitting             ``fit``: from data and a recipe to a trained run
assembly            from data and a recipe to model, loss and accelerator
linear              the solver of every linear model
linear_probe        the last layer solved for pretrained features, before fine-tuning (LP-FT)
auto                models for features, compared on rows they did not see
folds               which rows train and which choose
trainer             the one training loop; batches, optimizer, callbacks and log
evaluation          metrics of held-out rows after each epoch
checkpoint          everything that resuming needs, in one file
distributed         one loss over all processes; scoring rows on all of them
top_labels          runs on very many labels, of which rows keep the most probable
run_folder, run     the folder of a run; a trained run, ready to predict
prediction, onnx    predictions of many rows in parts; export
==================  ==========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from credibly.train.assembly import build_loss, resolve
    from credibly.train.callbacks import Callback, ProgressBar, read_log
    from credibly.train.checkpoint import read_tensors
    from credibly.train.distributed import WholeLoss, gather
    from credibly.train.fitting import fit
    from credibly.train.onnx import export
    from credibly.train.prediction import predict_members_to, predict_to
    from credibly.train.run import Run, load, run_readers
    from credibly.train.run_folder import is_run, read_config

__all__ = [
    "Auto",
    "Callback",
    "Ensemble",
    "Linear",
    "Network",
    "Probe",
    "ProgressBar",
    "Recipe",
    "Run",
    "TextLinear",
    "Trees",
    "WholeLoss",
    "build_loss",
    "export",
    "fit",
    "gather",
    "is_run",
    "load",
    "predict_members_to",
    "predict_to",
    "read_config",
    "read_log",
    "read_tensors",
    "recipe",
    "resolve",
    "run_readers",
]

# No module has the name of a function: importing it would put the module in the function's place.
_MODULES = {
    "Callback": "callbacks",
    "ProgressBar": "callbacks",
    "Run": "run",
    "WholeLoss": "distributed",
    "build_loss": "assembly",
    "export": "onnx",
    "fit": "fitting",
    "gather": "distributed",
    "is_run": "run_folder",
    "load": "run",
    "predict_members_to": "prediction",
    "predict_to": "prediction",
    "read_config": "run_folder",
    "read_log": "callbacks",
    "read_tensors": "checkpoint",
    "resolve": "assembly",
    "run_readers": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'credibly.train' has no attribute {name!r}")
    from credibly.checks import require  # it imports numpy, and --help must not

    require("train", "accelerate", "safetensors", "PIL")
    return getattr(import_module(f"credibly.train.{_MODULES[name]}"), name)
