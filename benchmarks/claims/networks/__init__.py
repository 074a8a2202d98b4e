"""The claims on networks trained end to end on real images (``make claims NETWORKS=1``).

methods   what is trained, in which order
tables    beside the papers' tables; what biases and optimizers change; what could be seen
"""

from benchmarks.claims.networks.methods import (
    BY_RULE,
    CIFAR_SETUPS,
    FEATURES,
    FROM_WEIGHTS,
    NO_LABEL,
    SETS_SETUPS,
    SETUPS,
    THROUGH,
    WITH_START,
    heads,
    methods,
)
from benchmarks.claims.networks.tables import power, tables, unfinished

__all__ = [
    "BY_RULE",
    "CIFAR_SETUPS",
    "FEATURES",
    "FROM_WEIGHTS",
    "NO_LABEL",
    "SETS_SETUPS",
    "SETUPS",
    "THROUGH",
    "WITH_START",
    "heads",
    "methods",
    "power",
    "tables",
    "unfinished",
]
