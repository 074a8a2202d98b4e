"""From data to credible predictions: train, resume, calibrate, predict, export.

    run = cr.train.fit(cr.data.load("digits"), "runs/x", cr.train.Settings(loss="spa+lpr"))
    run.predict(images).probabilities

A run is a folder that ``load`` opens again. Importing this package does not import torch.

==================  ==========================================================================
module              what it holds
==================  ==========================================================================
configuration       ``Settings``
assembly            from data and settings to model, loss and accelerator
trainer             the one training loop; batches, optimizer, callbacks, log
folds               which rows train and which choose
linear              the solver of every linear model
linear_probe        the last layer solved for pretrained features, before fine-tuning (LP-FT)
candidates, choice  models for features, compared on rows they did not see
checkpoint          everything that resuming needs, in one file
distributed         one loss over all processes; scoring rows on all of them
evaluation          metrics of held-out rows after each epoch
run_folder, run     the folder of a run; a trained run, ready to predict
fitting             ``fit``: from data to a finished run folder
in_memory           ``fit_matrix``: from a feature matrix to a model, without a folder
prediction, onnx    predictions of many rows in parts; export
==================  ==========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.train.configuration import Settings

if TYPE_CHECKING:
    from credibly.train.assembly import build_loss, resolve_settings
    from credibly.train.callbacks import Callback, ProgressBar, read_log
    from credibly.train.checkpoint import read_tensors
    from credibly.train.distributed import WholeLoss, gather
    from credibly.train.fitting import fit
    from credibly.train.in_memory import FittedModel, fit_matrix
    from credibly.train.onnx import export
    from credibly.train.prediction import predict_members_to, predict_to
    from credibly.train.run import Run, load, run_readers
    from credibly.train.run_folder import is_run, read_config

__all__ = [
    "Callback",
    "FittedModel",
    "ProgressBar",
    "Run",
    "Settings",
    "WholeLoss",
    "build_loss",
    "export",
    "fit",
    "fit_matrix",
    "gather",
    "is_run",
    "load",
    "predict_members_to",
    "predict_to",
    "read_config",
    "read_log",
    "read_tensors",
    "resolve_settings",
    "run_readers",
]

# No module has the name of a function: importing it would put the module in the function's place.
_MODULES = {
    "Callback": "callbacks",
    "FittedModel": "in_memory",
    "ProgressBar": "callbacks",
    "Run": "run",
    "WholeLoss": "distributed",
    "build_loss": "assembly",
    "export": "onnx",
    "fit": "fitting",
    "fit_matrix": "in_memory",
    "gather": "distributed",
    "is_run": "run_folder",
    "load": "run",
    "predict_members_to": "prediction",
    "predict_to": "prediction",
    "read_config": "run_folder",
    "read_log": "callbacks",
    "read_tensors": "checkpoint",
    "resolve_settings": "assembly",
    "run_readers": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'credibly.train' has no attribute {name!r}")
    from credibly.checks import require  # it imports numpy, and --help must not

    require("train", "accelerate", "safetensors", "PIL")
    return getattr(import_module(f"credibly.train.{_MODULES[name]}"), name)
