"""Types of the arrays that packages exchange. Shapes: ``n`` rows, ``L`` labels.

scores          the output of a model, one (or two, see ``Loss.scores_per_label``) per label
targets         1 present, 0 absent, anything in [0, 1] soft, −1 unknown
log_odds        logit of the estimated probability of presence
probabilities   estimated probability of presence, in [0, 1]
label sets      a bool matrix: which labels are returned for which row
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.runtime import Array as Array

    Scores: TypeAlias = Tensor
    LogOdds: TypeAlias = Tensor
    Probabilities: TypeAlias = Tensor
    ArrayLike: TypeAlias = Array | Tensor
else:
    Scores = LogOdds = Probabilities = Array = ArrayLike = Any


FilePath: TypeAlias = str | os.PathLike[str]
"""A path of a file or folder."""

JsonObject: TypeAlias = dict[str, Any]
"""What a JSON object holds: names, and plain values."""


@runtime_checkable
class ArrowTable(Protocol):
    """A table with the Arrow C stream interface, such as any data frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
