"""The functions behind the commands: evaluate, calibrate, write label sets, compare.

    cr.evaluate("predictions.parquet")                        accuracy and calibration of a file
    cr.calibrate_scores(scores, targets, loss="asl")          probabilities for a finished model
    cr.write_sets("predictions.parquet", cr.decide.AverageSize(5), "sets.parquet")
    cr.compare("digits", "compared", ["bce", "spa+lpr"])      several losses and seeds, one table

Every function returns a small dataclass with ``to_dict()``, which is what ``--json`` prints.
Importing this package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from credibly.workflows.calibration import calibrate_dataset
    from credibly.workflows.calibration import calibrate_scores as calibrate_scores
    from credibly.workflows.comparison import compare as compare
    from credibly.workflows.evaluation import evaluate as evaluate
    from credibly.workflows.label_sets import write_sets as write_sets
    from credibly.workflows.row_drift import drift
    from credibly.workflows.rows import FitRows

# No module has the name of a function: importing it would replace the function by the module.
_MODULES = {
    "FitRows": "rows",
    "calibrate_dataset": "calibration",
    "calibrate_file": "calibration",
    "calibrate_scores": "calibration",
    "check_files": "integrity",
    "compare": "comparison",
    "drift": "row_drift",
    "evaluate": "evaluation",
    "predict_dataset": "prediction",
    "warm_up": "warming",
    "write_sets": "label_sets",
}

__all__ = [
    "FitRows",
    "calibrate_dataset",
    "drift",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'credibly.workflows' has no attribute {name!r}")
    return getattr(import_module(f"credibly.workflows.{_MODULES[name]}"), name)
