"""Use credibly with other training libraries.

    cr.integrations.huggingface.compute_loss_func(loss)  Trainer: loss, metrics, model card
    cr.integrations.lightning.Calibrate("asl")           Lightning: module and callback
    cr.review.label_studio.write_tasks(issues, …)        Label Studio: tasks, and their answers
    cr.review.fiftyone.write_labels(issues, …)           FiftyOne: labels, and their review

scikit-learn is a dependency of the package: see ``cr.CalibratedMultiLabel``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from credibly.integrations import huggingface, lightning

__all__ = ["huggingface", "lightning"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return import_module(f"credibly.integrations.{name}")
    raise AttributeError(f"module 'credibly.integrations' has no attribute {name!r}")
