"""From data to credible predictions: train, resume, calibrate, predict, compare, export.

    run = cr.train.fit(cr.data.load("digits"), "runs/x", cr.train.Settings(loss="spa+lpr"))
    run.predict(images).probabilities

A run is a folder that ``load`` opens again. Importing this room does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.train.presets import PRESETS, preset
from credibly.train.settings import Settings

if TYPE_CHECKING:
    from credibly.train.comparison import compare
    from credibly.train.fitting import fit
    from credibly.train.loop import Watcher
    from credibly.train.onnx import export
    from credibly.train.run import Run, load
    from credibly.train.shards import predict_to

__all__ = [
    "PRESETS",
    "Run",
    "Settings",
    "Watcher",
    "compare",
    "export",
    "fit",
    "load",
    "predict_to",
    "preset",
]

# No module is called like a function: importing it would put the module in the function's place.
_WHERE = {
    "Run": "run",
    "compare": "comparison",
    "export": "onnx",
    "fit": "fitting",
    "Watcher": "loop",
    "load": "run",
    "predict_to": "shards",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'credibly.train' has no attribute {name!r}")
    return getattr(import_module(f"credibly.train.{_WHERE[name]}"), name)
