"""The base class of losses: a criterion and its map from scores to probabilities.

A loss belongs to one of three families, by what it couples:

==============  ===========================  ====================================================
family          couples                      a subclass gives
==============  ===========================  ====================================================
`BinaryLoss`    nothing: entries are alone   ``positive`` and ``negative``, the two partial losses
`RowLoss`       the labels of a row          ``row_values``, one value per row
`BatchLoss`     the rows of a batch          ``batch_values``, and whether it spans processes
==============  ===========================  ====================================================

Every property of a loss is declared on `Loss`, as a class attribute or as a method with a default.
Nothing is inferred from the presence of a name.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from credibly import checks
from credibly.losses.collectives import all_reduce_sum
from credibly.losses.fused.form import FusedForm
from credibly.types import JsonObject, LogOdds, Probabilities, Scores

if TYPE_CHECKING:
    from credibly.losses.linear.chunks import LinearForm

Properness: TypeAlias = Literal["strict", "recoverable", "none"]
Reduction: TypeAlias = Literal["mean", "rows", "sum", "none"]
LinkFormula: TypeAlias = JsonObject
"""A link as plain values; see ``Loss.formula``."""

REDUCTIONS = ("mean", "rows", "sum", "none")

ABSENT_SCORE = -1e30
"""The score of a label that takes no part in a softmax; finite, so that gradients stay so."""


_LINK_METHODS = (
    "log_odds",
    "published_log_odds",
    "known_log_odds",
    "top_log_odds",
    "probabilities",
    "ranking_scores",
    "initial_scores",
)


OTHER_NAMES = {
    "alpha": "To weigh positives, use `BCE(pos_weight=alpha / (1 - alpha))`.",
    "clip": "Its name here is `margin`.",
    "disable_torch_grad_focal_loss": "Its name here is `detach_weight`.",
    "eps": "Our formulas need no clamping, so leave it out; label smoothing is `smoothing`.",
    "gamma": "There is one for each sign: `gamma_pos` and `gamma_neg`.",
    "Tp": "Its name here is `temperature_pos`.",
    "Tn": "Its name here is `temperature_neg`.",
    "label_smoothing": "Pass soft targets: `targets * (1 - s) + s / 2` of labels, `… + s / L` of "
    "classes.",
    "pos_weight": "Use `BCE(pos_weight=…)`, whose link undoes the weight, or calibrate after "
    "`loss(scores, targets, weight=1 + (pos_weight - 1) * targets)`.",
    "weight": "Pass it with the scores: `loss(scores, targets, weight=…)`.",
    "smoothing": "Pass soft targets: `targets * (1 - smoothing) + smoothing / 2`.",
    "sum_classes": "Write `reduction='rows'`.",
    "target_threshold": "Pass targets of 0 and 1: `(targets > threshold).float()`.",
    "size_average": "Write `reduction='mean'` or `reduction='sum'`.",
    "ignore_index": "Unknown labels are -1 or NaN in the targets, so leave it out.",
}
"""Arguments of other libraries (official ASL and two-way, timm, torchvision), with our names."""


def _for_arrays(method: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return a link method that also accepts numpy arrays, and then returns arrays."""

    @functools.wraps(method)
    def mapped(self: Loss, *values: Any, **named: Any) -> Any:
        if not any(isinstance(value, np.ndarray) for value in (*values, *named.values())):
            return method(self, *values, **named)
        device = next((buffer.device for buffer in self.buffers()), None)

        def tensor(value: Any) -> Any:
            return torch.as_tensor(np.require(value, requirements=["C", "W"]), device=device)

        with torch.no_grad():
            named = {name: tensor(value) for name, value in named.items()}
            result = method(self, *(tensor(value) for value in values), **named)
        return result.detach().cpu().numpy()

    return mapped


class Loss(nn.Module, ABC):
    """A training criterion with its link, the map from scores to log-odds.

    The link (``log_odds``, ``probabilities``, ``ranking_scores`` and ``initial_scores``) accepts
    tensors and numpy arrays, and returns the same type. Subclasses inherit this.

    Subclass one of the three families, which implement the common parts. A direct subclass defines
    ``forward`` and ``values`` and, if the method has a link, ``log_odds``.

    Args:
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` (of ``values``) or ``"none"`` (``values``
            themselves). The mean divides by the number of known entries, or of rows that count
            (see each loss). ``"rows"`` sums over labels and takes the mean over rows with a
            known label, as printed in many papers; for losses with one value per row, it is the
            mean. Weights multiply the values but do not change these numbers, as in
            ``nn.BCEWithLogitsLoss``.

    Example:
        >>> import credibly as cr
        >>> loss: Loss = cr.losses.from_name("asl")
        >>> scores, targets = torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]])
        >>> torch.allclose(loss(scores, targets), loss.values(scores, targets).mean())
        True
        >>> loss.properness, loss.probabilities(scores).shape
        ('recoverable', torch.Size([1, 2]))
    """

    name: ClassVar[str] = ""
    """Name on the command line, for ``from_name``; the class name in small letters by default."""

    properness: Properness = "none"
    """``"strict"``: the risk minimiser's probabilities are the true rates. ``"recoverable"``: they
    are, except on an interval that the loss cannot resolve. ``"none"``: they need not be, so
    calibrate."""

    scores_per_label: ClassVar[int] = 1
    """Outputs the model must give per label; the columns of one head stand together."""

    single_label: ClassVar[bool] = False
    """Whether each row must have exactly one observed label (``targets`` may be class indices)."""

    needs_indices: ClassVar[bool] = False
    """Whether it keeps something per training row and wants ``indices=`` with each batch."""

    spans_processes: bool = False
    """Whether, in training mode, it sums over all processes itself and returns the loss of the
    union of their batches (see `credibly.losses.collectives`). A trainer gathers scores and targets
    for the others, which is right for every loss."""

    has_state: bool = False
    """Whether ``fit_state`` has something to fit."""

    published: ClassVar[Literal["link", "sigmoid", "softmax"]] = "link"
    """What the method's authors turn scores into probabilities with; see `Published`."""

    labelwise: bool = False
    """Whether the link maps each score on its own, so that it can be drawn as a curve."""

    detached: bool = False
    """Whether training uses a gradient that is not that of the value, by the method's design."""

    exclusive: bool = False
    """Whether the link takes exactly one label to be true, so that probabilities sum to one."""

    models_pairs: bool = False
    """Whether the likelihood is of all labels together, so that it knows pairs already."""

    has_link: bool = True
    """Whether ``log_odds`` and ``probabilities`` are defined."""

    smallest_example: ClassVar[str] = """
class Mine(cr.losses.RowLoss):
    def row_values(self, scores, targets):
        known = targets >= 0
        values = (scores - targets).square().where(known, 0.0).sum(1)
        return values, known.any(1)
"""
    """The shortest subclass that works, shown by the error about a missing method."""

    def __new__(cls, *_arguments: Any, **keywords: Any) -> Self:
        missing = sorted(cls.__abstractmethods__)
        if missing:
            raise checks.InputError(_missing(cls, missing))
        known = signature(cls.__init__).parameters
        anything = any(each.kind is Parameter.VAR_KEYWORD for each in known.values())
        for name in keywords.keys() - known.keys():
            if not anything:
                hint = OTHER_NAMES.get(name) or checks.nearest(name, list(known)[1:])
                raise checks.InputError(f"{cls.__name__} has no `{name}`. {hint}")
        return super().__new__(cls)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if not cls.name and "name" not in vars(cls):
            cls.name = cls.__name__.lower()
        for method in _LINK_METHODS:
            if method in vars(cls):
                setattr(cls, method, _for_arrays(vars(cls)[method]))

    default_reduction: ClassVar[Reduction] = "mean"
    """The constructor's default, which ``repr`` leaves out."""

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction: Reduction = checks.choice("reduction", reduction, REDUCTIONS)

    @classmethod
    def arguments(cls) -> dict[str, bool]:
        """Return the arguments allowed in brackets after its name, and whether each is required.

        Each is stored as an attribute of the same name.
        """
        given = signature(cls.__init__).parameters.values()
        own = [each for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
        return {x.name: x.default is x.empty for x in own if x.name not in ("self", "loss")}

    @abstractmethod
    def forward(self, scores: Scores, targets: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss, reduced as ``reduction`` says; a scalar by default.

        Args:
            scores: (rows, ``scores_per_label`` × labels), floating point.
            targets: (rows, labels): 1, 0, soft in [0, 1]; negative or NaN is unknown. Or class
                indices of shape (rows,).
            weight: non-negative factors of the values, one per row: (rows,) or (rows, 1).
                Losses of single entries take (rows, labels), too.
        """

    @abstractmethod
    def values(self, scores: Scores, targets: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the unreduced loss: one value per entry if the method has them, else per row."""

    @_for_arrays
    def log_odds(self, scores: Scores) -> LogOdds:
        """Return the logit of the probability that each label is present; stable for any score."""
        raise checks.InputError(
            f"{type(self).__name__} has no link, because its scores only rank. To get "
            "probabilities, fit `cr.calibrate.Affine()` on held-out scores and use its "
            "`transform(scores)` as log-odds."
        )

    @_for_arrays
    def published_log_odds(self, scores: Scores) -> LogOdds:
        """Return the log-odds as the method's authors take them; see ``published``."""
        if self.published == "link":
            return self.log_odds(scores)
        ranking = self.ranking_scores(working_precision(scores))
        if self.published == "sigmoid":
            return ranking
        return softmax_log_odds(ranking)

    @_for_arrays
    def known_log_odds(self, scores: Scores, known: Tensor) -> LogOdds:
        """Return ``log_odds`` as if labels outside of ``known`` did not exist.

        The default is correct for links that map each score separately, and for a softmax. Another
        link that compares the scores of a row must ignore unknown labels. Results at unknown labels
        have no meaning.
        """
        if self.exclusive:
            known = known.repeat(1, self.scores_per_label)
            scores = torch.where(known, working_precision(scores), ABSENT_SCORE)
        return self.log_odds(scores)

    @_for_arrays
    def top_log_odds(self, scores: Scores, log_sum: Tensor) -> LogOdds:
        """Return ``log_odds`` of some labels of each row, given log Σ exp(score) of all labels.

        The default is correct for links that map each score separately.
        """
        return self.log_odds(scores)

    @_for_arrays
    def probabilities(self, scores: Scores) -> Probabilities:
        """Return the probability that each label is present."""
        return torch.sigmoid(self.log_odds(scores))

    @_for_arrays
    def ranking_scores(self, scores: Scores) -> Scores:
        """Return the scores to rank by, one column per label; of two heads, those that predict."""
        return scores

    @_for_arrays
    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return scores whose probabilities are ``label_rates``, as initial biases of a last layer.

        Rates of exactly 0 or 1 must be smoothed first (add-half on the counts does).
        """
        rates = torch.as_tensor(label_rates).double()
        goal = torch.logit(rates)
        found = bisect(lambda scores: self.log_odds(scores) < goal, rates, 1e4)
        return found.to(torch.get_default_dtype())

    def formula(self) -> LinkFormula | None:
        """Return the link as plain values: a name in `credibly.runtime`, and its numbers.

        The default, None, is for links that only torch can compute.
        """
        return None

    def ranking_formula(self) -> LinkFormula | None:
        """Return ``ranking_scores`` as plain values, likewise."""
        return {"link": "shift"}

    def numpy_link(self, *, ranking: bool = False) -> LinkFormula | None:
        """Return the formula of the link, or of ``ranking_scores``.

        It is None if there is no formula, or if a subclass overrides the method but not the
        formula.
        """
        form, method = ("ranking_formula", "ranking_scores") if ranking else ("formula", "log_odds")
        return getattr(self, form)() if belongs(type(self), form, (method,)) else None

    def num_outputs(self, num_labels: int) -> int:
        """Return how many outputs the model needs for ``num_labels`` labels."""
        return self.scores_per_label * num_labels

    def num_labels_of(self, num_outputs: int) -> int:
        """Return the number of labels for a number of outputs."""
        return num_outputs // self.scores_per_label

    def link_state(self) -> dict[str, Tensor]:
        """Return the buffers of the link, by their names in ``state_dict``."""
        return dict(self.named_buffers())

    def fit_state(self, batches: Iterable[tuple[Scores, Tensor]]) -> Self:
        """Fit the state of the link in one pass over training batches.

        The base class has no state and does nothing; see ``has_state``.
        """
        return self

    def state_summary(self) -> dict[str, float]:
        """Return the numbers that ``fit_state`` fits, by name."""
        return {}

    def pairs_loop(self, weight: float) -> FusedForm | None:
        """Return the compiled loop of this loss plus label pairs on its log-odds, or None."""
        return None

    def linear_form(self) -> LinearForm | None:
        """Return how ``fused_linear`` computes this loss over chunks of labels, or None.

        The default, None, is for losses that need the scores of all labels at once.
        """
        return None

    def reduce(self, values: Tensor, count: Tensor) -> Tensor:
        """Return ``values`` as ``reduction`` says; ``count`` is what its mean divides by."""
        if self.reduction == "none":
            return values
        total = all_reduce_sum(values.sum(), self.spans_processes and self.training)
        return total if self.reduction == "sum" else total / count.clamp(min=1)

    def extra_repr(self) -> str:
        """Return the constructor's arguments, for ``repr``."""
        shown = [f"{name}={_shown(getattr(self, name, None))}" for name in self.arguments()]
        if self.reduction != self.default_reduction:
            shown.append(f"reduction={self.reduction!r}")
        return ", ".join(text for text in shown if not text.endswith("=None"))

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # `.half()` and `.to(torch.bfloat16)` call this. In half precision, accumulated sums would
        # overflow or stop changing, so buffers keep their precision and only change their device.
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, kept in before.items():
            now = getattr(self, name)
            if now.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, kept.to(now.device))
        return self


@functools.cache
def belongs(kind: type, form: str, formulas: tuple[str, ...]) -> bool:
    """Return whether no subclass of the class with ``form`` overrides one of ``formulas``."""
    written = next(each for each in kind.__mro__ if not vars(each).keys().isdisjoint(formulas))
    return issubclass(next(each for each in kind.__mro__ if form in vars(each)), written)


def working_precision(scores: Scores) -> Scores:
    """Return float16 and bfloat16 scores as float32, in which every loss is computed."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def softmax_log_odds(scores: Scores) -> LogOdds:
    r"""Return the logit of each softmax probability: $z_k - \mathrm{LSE}_{j \ne k}(z_j)$.

    Stable where the probability itself rounds to 0 or 1; infinite for a single label, whose
    softmax is always 1.

    Example:
        >>> softmax_log_odds(torch.tensor([[500.0, 0.0, 0.0]]))
        tensor([[ 499.3069, -500.0000, -500.0000]])
    """
    if scores.shape[-1] == 1:
        return torch.full_like(scores, torch.inf)
    top, index = scores.max(-1, keepdim=True)
    is_top = torch.arange(scores.shape[-1], device=scores.device) == index
    below = torch.exp(scores - top)
    # The exact 1 of the largest entry remains in the sum unless that entry is subtracted, so
    # nothing cancels.
    rest = torch.log(below.sum(-1, keepdim=True) - torch.where(is_top, 0.0, below))
    others = scores.masked_fill(is_top, -torch.inf)
    second = others.detach().amax(-1, keepdim=True)
    lead = (top - second) - torch.logsumexp(others - second, -1, keepdim=True)
    return torch.where(is_top, lead, scores - top - rest)


def bisect(below: Callable[[Tensor], Tensor], like: Tensor, reach: float) -> Tensor:
    """Return where ``below`` changes from True to False, per entry, within ± ``reach``."""
    low, high = torch.full_like(like, -reach), torch.full_like(like, reach)
    for _ in range(200):  # bisection ends at adjacent floats
        middle = (low + high) / 2
        left = below(middle)
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    return high


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.item():g}" if value.numel() == 1 else f"<{value.numel()} numbers>"
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _missing(cls: type[Loss], methods: list[str]) -> str:
    listed = []
    for method in methods:
        purpose = (getattr(cls, method).__doc__ or "").split("\n")[0]
        listed.append(f"`{method}`: {purpose}")
    return (
        f"`{cls.__name__}` must define {'; '.join(listed)} It does not. The smallest loss of this "
        f"kind:\n{cls.smallest_example}"
    )
