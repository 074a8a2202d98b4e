"""Losses that own their links: (scores, targets) → loss, scores → log-odds → probabilities."""

from credibly.losses.assume_negative import AssumeNegative
from credibly.losses.asymmetric import Asymmetric
from credibly.losses.asymmetric_single_label import AsymmetricSingleLabel
from credibly.losses.audit import Audit, audit
from credibly.losses.average_k import AverageK
from credibly.losses.balanced_topk import BalancedTopK
from credibly.losses.base import Loss
from credibly.losses.batches import BatchLoss
from credibly.losses.bce import BCE
from credibly.losses.composite import Composite
from credibly.losses.entries import BinaryLoss
from credibly.losses.expected_positive import ExpectedPositive
from credibly.losses.focal import Focal
from credibly.losses.joint_mixture import JointMixture
from credibly.losses.label_pairs import LabelPairs
from credibly.losses.linear import fused_linear
from credibly.losses.online_estimation import OnlineEstimation
from credibly.losses.published import Published
from credibly.losses.quasibinary import Quasibinary
from credibly.losses.registry import from_name, names
from credibly.losses.robust_multi_label import RobustMultiLabel
from credibly.losses.rows import RowLoss
from credibly.losses.softmax import Softmax
from credibly.losses.spa import SPA
from credibly.losses.targets import check_targets
from credibly.losses.two_way import TwoWay
from credibly.losses.two_way_term import TwoWayTerm
from credibly.losses.warp import Warp

__all__ = [
    "BCE",
    "SPA",
    "AssumeNegative",
    "Asymmetric",
    "AsymmetricSingleLabel",
    "Audit",
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
