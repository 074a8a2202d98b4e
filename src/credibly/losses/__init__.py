"""Losses with their links: (scores, targets) → loss, and scores → log-odds → probabilities."""

from credibly.losses.assume_negative import AssumeNegative
from credibly.losses.asymmetric import Asymmetric, Focal
from credibly.losses.asymmetric_single_label import AsymmetricSingleLabel
from credibly.losses.audit import audit
from credibly.losses.average_k import AverageK
from credibly.losses.balanced_topk import BalancedTopK
from credibly.losses.base import Loss
from credibly.losses.bce import BCE
from credibly.losses.composite import Composite
from credibly.losses.expected_positive import ExpectedPositive
from credibly.losses.families import BatchLoss, BinaryLoss, RowLoss, check_targets
from credibly.losses.joint_mixture import JointMixture
from credibly.losses.label_pairs import LabelPairs
from credibly.losses.linear.chunks import fused_linear
from credibly.losses.online_estimation import OnlineEstimation
from credibly.losses.quasibinary import Quasibinary
from credibly.losses.registry import from_name, names
from credibly.losses.robust_multi_label import RobustMultiLabel
from credibly.losses.softmax import Softmax
from credibly.losses.spa import SPA
from credibly.losses.two_way import TwoWay, TwoWayTerm
from credibly.losses.warp import Warp
from credibly.losses.wrapped import Published

__all__ = [
    "BCE",
    "SPA",
    "AssumeNegative",
    "Asymmetric",
    "AsymmetricSingleLabel",
    "AverageK",
    "BalancedTopK",
    "BatchLoss",
    "BinaryLoss",
    "Composite",
    "ExpectedPositive",
    "Focal",
    "JointMixture",
    "LabelPairs",
    "Loss",
    "OnlineEstimation",
    "Published",
    "Quasibinary",
    "RobustMultiLabel",
    "RowLoss",
    "Softmax",
    "TwoWay",
    "TwoWayTerm",
    "Warp",
    "audit",
    "check_targets",
    "from_name",
    "fused_linear",
    "names",
]
