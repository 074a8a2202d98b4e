"""Losses that own their links: (scores, targets) → loss, scores → log-odds → probabilities."""

from credibly.losses._base import Loss
from credibly.losses._binary import BinaryLoss
from credibly.losses.audit import Audit, audit
from credibly.losses.composite import Composite
from credibly.losses.naming import from_name, names
from credibly.losses.targets import check_targets

__all__ = [
    "Audit",
    "BinaryLoss",
    "Composite",
    "Loss",
    "audit",
    "check_targets",
    "from_name",
    "names",
]
