"""Joint probabilities of all labels of a row: a mixture of products, trained by its likelihood."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad, softplus

from credibly import checks
from credibly.losses.base import LinkFormula, Reduction, bisect, working_precision
from credibly.losses.families import RowLoss
from credibly.types import LogOdds, Probabilities, Scores

_NEVER = -1e30  # log of zero that stays finite under autograd
_SMALLEST = 1e-30


class JointMixture(RowLoss):
    r"""Log-likelihood of all labels of a row together, under a mixture of products.

    $$P(y \mid x) = \frac{h(y)}{Z(x)} \sum_{k=1}^K \pi_k(x) \prod_l p_{lk}^{y_l}
      (1 - p_{lk})^{1 - y_l}, \qquad p_{lk} = \sigma(v_l(x) + \delta_{lk})$$

    with $h = e^{\epsilon(x)}$ for the row without labels and 1 for all others, and
    $Z = 1 + (e^\epsilon - 1) P_\text{mixture}(\emptyset)$. The model gives $v$ (one score per
    label), the logits of $\pi$ ($K$ scores) and $\epsilon$ (one), in this order: ``num_outputs``.
    The offsets $\delta$ are parameters of this loss, so give ``loss.parameters()`` to the
    optimizer, too. Components that share one score vector overfit less than free ones.

    The value of a row is $-\log P(\text{known labels}) / L$: unknown labels are summed out exactly,
    and one component with $\epsilon = 0$ is the mean of BCE. Strictly proper for the whole label
    vector, among 0/1 targets; ``log_odds`` are those of the exact marginals. A soft target
    interpolates the log-probabilities of present and absent.

    Args:
        num_labels: $L$.
        components: $K \geq 1$. With one, labels depend on each other only through the row without
            labels.
        spread: standard deviation of the random initial values of $\delta$.
        seed: of the initial values.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = JointMixture(num_labels=3, components=2)
        >>> loss.num_outputs(3)
        6
        >>> scores = torch.zeros(1, 6)
        >>> loss.probabilities(scores).shape
        torch.Size([1, 3])
        >>> JointMixture(3, 1, spread=0.0)(torch.zeros(1, 5), torch.tensor([[1.0, 0, 0]]))
        tensor(0.6931, grad_fn=<DivBackward0>)
    """

    name = "joint"
    properness = "strict"
    models_pairs = True

    def __init__(
        self,
        num_labels: int,
        components: int = 16,
        spread: float = 1.0,
        seed: int = 0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.num_labels = int(checks.at_least("num_labels", num_labels, 1))
        self.components = int(checks.at_least("components", components, 1))
        self.spread = checks.at_least("spread", spread, 0.0)
        self.seed = int(seed)
        generator = torch.Generator().manual_seed(self.seed)
        start = torch.randn(self.components, self.num_labels, generator=generator)
        self.offsets = nn.Parameter(self.spread * start)

    def num_outputs(self, num_labels: int) -> int:
        if num_labels != self.num_labels:
            raise checks.InputError(
                f"this loss was made for {self.num_labels} labels; got {num_labels}. Make a new "
                "loss."
            )
        return num_labels + self.components + 1

    def num_labels_of(self, num_outputs: int) -> int:
        expected = self.num_outputs(self.num_labels)
        if num_outputs != expected:
            raise checks.InputError(
                f"`scores` must have one column per label, {self.components} of the gate and one "
                f"of the empty set, {expected} in all; got {num_outputs}. Give the model "
                "`loss.num_outputs(num_labels)` outputs."
            )
        return self.num_labels

    def link_state(self) -> dict[str, Tensor]:
        return {"offsets": self.offsets}

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_odds, gate, empty = self._split(scores)
        known, positive = (targets >= 0)[:, None], targets.clamp(min=0)[:, None]
        none = softplus(log_odds)  # −log of "this label is absent", by component
        seen = gate + torch.where(known, positive * log_odds - none, 0.0).sum(-1)
        unseen = torch.where(known, 0.0, none).sum(-1)
        no_label, some_label = self._empty(none, gate, empty)
        total = _log_add(some_label, no_label)
        # Without a known positive, the row may be empty, so the factor of the empty row counts.
        maybe_empty = _log_add(torch.logsumexp(seen + _log_complement(unseen), 1), no_label)
        emptiness = torch.where(targets >= 0, 1 - targets, 1.0).prod(1)
        likelihood = torch.logsumexp(seen, 1)
        likelihood = emptiness * maybe_empty + (1 - emptiness) * likelihood
        return (total - likelihood) / targets.shape[1], (targets >= 0).any(1)

    def log_odds(self, scores: Scores) -> LogOdds:
        log_odds, gate, empty = self._split(working_precision(scores))
        none = softplus(log_odds)
        no_label, _ = self._empty(none, gate, empty)
        present = torch.logsumexp(gate[..., None] + logsigmoid(log_odds), 1)
        # Absent while another label is present. The sums from both sides never cancel.
        before = pad(none.cumsum(-1)[..., :-1], (1, 0))
        after = pad(none.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))
        others = _log_complement(before + after)
        absent = torch.logsumexp(gate[..., None] - none + others, 1)
        return present - _log_add(absent, no_label[:, None].expand_as(absent))

    def ranking_scores(self, scores: Scores) -> Scores:
        """Return the log-odds of the marginals."""
        return self.log_odds(scores)

    def formula(self) -> LinkFormula:
        offsets = self.offsets.detach().double().tolist()
        return {"link": "joint", "offsets": offsets, "components": self.components}

    def ranking_formula(self) -> LinkFormula:
        return self.formula()

    def initial_scores(self, label_rates: Tensor) -> Scores:
        """Return scores whose marginals are ``label_rates``, with gate and empty set at 0."""
        rates = torch.as_tensor(label_rates).double()
        offsets = self.offsets.detach().double().to(rates.device)
        scores = bisect(lambda v: torch.sigmoid(v + offsets).mean(0) < rates, rates, 1e4)
        start = torch.cat([scores, rates.new_zeros(self.components + 1)])
        return start.to(torch.get_default_dtype())

    def mixture(self, scores: Scores) -> tuple[Tensor, Probabilities]:
        """Return the distribution as weights and label probabilities of products.

        Returns:
            weights (rows, K + 1), which sum to one, and probabilities (rows, K + 1, labels). The
            last product is the row without labels; its weight is negative where $\\epsilon < 0$.
            The probability of any query is the weighted sum of those under independence.
        """
        log_odds, gate, empty = self._split(working_precision(scores))
        none = softplus(log_odds)
        no_label, some_label = self._empty(none, gate, empty)
        total = _log_add(some_label, no_label)
        extra = torch.exp(no_label - total) - torch.exp(no_label - empty - total)
        weights = torch.cat([torch.exp(gate - total[:, None]), extra[:, None]], dim=1)
        chances = torch.sigmoid(log_odds)
        return weights, torch.cat([chances, torch.zeros_like(chances[:, :1])], dim=1)

    def _split(self, scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-odds by component (rows, K, L), log of the gate (rows, K), and ε (rows,)."""
        count = self.num_labels_of(scores.shape[1])
        labels, gate, empty = scores.split([count, self.components, 1], dim=1)
        offsets = self.offsets.to(scores.dtype)
        return labels[:, None] + offsets, torch.log_softmax(gate, 1), empty[:, 0]

    @staticmethod
    def _empty(none: Tensor, gate: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log mass of the empty row, times its factor, and that of all others."""
        total = none.sum(-1)
        no_label = empty + torch.logsumexp(gate - total, 1)
        return no_label, torch.logsumexp(gate + _log_complement(total), 1)


def _log_complement(costs: Tensor) -> Tensor:
    """Return log(1 − e^−a) for a ≥ 0, finite at a = 0."""
    positive = costs > _SMALLEST
    safe = torch.where(positive, costs, 1.0)
    # 1 − e^−a = tanh(a/2) (1 + e^−a) is accurate for small a, and ONNX supports it.
    value = torch.log(torch.tanh(safe / 2)) + torch.log1p(torch.exp(-safe))
    return torch.where(positive, value, _NEVER)


def _log_add(one: Tensor, other: Tensor) -> Tensor:
    return torch.logsumexp(torch.stack([one, other]), 0)
