"""Losses that own their links: (scores, targets) → loss, scores → log-odds → probabilities."""

from credibly.losses._base import Loss
from credibly.losses._binary import BinaryLoss
from credibly.losses.asymmetric import Asymmetric
from credibly.losses.audit import Audit, audit
from credibly.losses.bce import BCE
from credibly.losses.composite import Composite
from credibly.losses.focal import Focal
from credibly.losses.naming import from_name, names
from credibly.losses.spa import SPA
from credibly.losses.targets import check_targets

__all__ = [
    "BCE",
    "SPA",
    "Asymmetric",
    "Audit",
    "BinaryLoss",
    "Composite",
    "Focal",
    "Loss",
    "audit",
    "check_targets",
    "from_name",
    "names",
]
