"""What the commands do, as functions: evaluate, calibrate, write label sets, compare.

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
    from credibly.workflows.calibration import (
        CalibratedScores,
        calibrate_file,
        calibrate_scores,
    )
    from credibly.workflows.comparison import Comparison, compare
    from credibly.workflows.evaluation import Evaluation, evaluate, evaluate_all
    from credibly.workflows.fit_rows import FitRows
    from credibly.workflows.integrity import FileCheck, Integrity, check_files
    from credibly.workflows.joint_models import fit_joint_file, joint_from
    from credibly.workflows.label_sets import WrittenSets, write_sets
    from credibly.workflows.parts import CalibratedParts, calibrate_parts
    from credibly.workflows.predicted_parts import PredictedParts, predict_parts
    from credibly.workflows.probability_maps import ProbabilityMap
    from credibly.workflows.row_drift import drift
    from credibly.workflows.top_labels import calibrate_top_file, holds_top_labels
    from credibly.workflows.warming import WarmUp, warm_up

__all__ = [
    "CalibratedParts",
    "CalibratedScores",
    "Comparison",
    "Evaluation",
    "FileCheck",
    "FitRows",
    "Integrity",
    "PredictedParts",
    "ProbabilityMap",
    "WarmUp",
    "WrittenSets",
    "calibrate_file",
    "calibrate_parts",
    "calibrate_scores",
    "calibrate_top_file",
    "check_files",
    "compare",
    "drift",
    "evaluate",
    "evaluate_all",
    "fit_joint_file",
    "holds_top_labels",
    "joint_from",
    "predict_parts",
    "warm_up",
    "write_sets",
]

# No module has the name of a function: importing it would put the module in the function's place.
_MODULES = {
    "CalibratedParts": "parts",
    "CalibratedScores": "calibration",
    "Comparison": "comparison",
    "Evaluation": "evaluation",
    "FileCheck": "integrity",
    "FitRows": "fit_rows",
    "Integrity": "integrity",
    "PredictedParts": "predicted_parts",
    "ProbabilityMap": "probability_maps",
    "WarmUp": "warming",
    "WrittenSets": "label_sets",
    "calibrate_file": "calibration",
    "calibrate_parts": "parts",
    "calibrate_scores": "calibration",
    "calibrate_top_file": "top_labels",
    "check_files": "integrity",
    "compare": "comparison",
    "drift": "row_drift",
    "evaluate": "evaluation",
    "evaluate_all": "evaluation",
    "warm_up": "warming",
    "fit_joint_file": "joint_models",
    "holds_top_labels": "top_labels",
    "joint_from": "joint_models",
    "predict_parts": "predicted_parts",
    "write_sets": "label_sets",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'credibly.workflows' has no attribute {name!r}")
    return getattr(import_module(f"credibly.workflows.{_MODULES[name]}"), name)
