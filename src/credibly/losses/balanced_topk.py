"""Balanced noised top-K loss: the observed label among the K largest scores."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly import checks
from credibly.losses.base import Reduction
from credibly.losses.families import RowLoss
from credibly.types import Scores


class BalancedTopK(RowLoss):
    r"""Balanced top-K hinge, smoothed by noise.

    $$\ell = \max\Bigl(0,\; m + \frac1M \sum_{k=1}^{M} (s + \epsilon Z_k)_{[K+1]} - s_y\Bigr)$$

    $x_{[K+1]}$ is the $(K+1)$-th largest entry and $Z_k$ are standard normal. The gradient flows
    through the selected scores and $s_y$, not through the noise. Garcin et al. (2022), balanced
    form. The mean is over rows with an observed label. With several such labels, the value is the
    mean over them.

    Noise is drawn only in training mode, from ``generator`` or from torch's global generator, which
    ``torch.manual_seed`` controls. In evaluation mode, the loss is the plain top-K hinge. Unknown
    labels are not ranked, and a row with at most $K$ known labels has value 0. No link: scores only
    rank. A NaN score makes the value of its row NaN.

    Args:
        average_size: $K$, a whole number of at least 1: the number of labels returned per row.
        noise: $\epsilon \ge 0$.
        num_samples: $M \ge 1$.
        margin: $m > 0$.
        generator: source of the noise.
        reduction: ``"mean"``, ``"rows"``, ``"sum"`` or ``"none"``; see `Loss`.

    Example:
        >>> loss = BalancedTopK(average_size=2).eval()
        >>> scores = torch.tensor([[3.0, 1.5, 1.0, -1.0], [0.0, 2.0, 1.0, 4.0]])
        >>> loss.values(scores, torch.tensor([0, 2]))
        tensor([0., 1.])
    """

    name = "topk"
    properness = "none"
    has_link = False
    published = "softmax"
    single_label = True

    def __init__(
        self,
        average_size: int = 5,
        noise: float = 1.0,
        num_samples: int = 5,
        margin: float = 1.0,
        *,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        for argument, value in (("average_size", average_size), ("num_samples", num_samples)):
            if value < 1 or value != int(value):
                raise checks.InputError(
                    f"`{argument}` must be a whole number of at least 1; got {value!r}."
                )
        self.average_size, self.num_samples = int(average_size), int(num_samples)
        self.noise = checks.at_least("noise", noise, 0)
        self.margin = checks.positive("margin", margin)
        self.generator = generator

    def row_values(self, scores: Scores, targets: Tensor) -> tuple[Tensor, Tensor]:
        known = targets >= 0
        shares = torch.where(known, targets, 0.0)
        labelled = shares.sum(1) > 0
        shares = shares / torch.where(labelled, shares.sum(1), 1.0)[:, None]
        ranked = labelled & (known.sum(1) > self.average_size)
        scores = torch.where(known, scores, 0.0)
        if self.average_size >= scores.shape[1]:  # every label is returned
            return 0.0 * scores.sum(1), labelled
        hinges = torch.relu(self.margin + self._next_best(scores, known)[:, None] - scores)
        values = torch.where(shares > 0, shares * hinges, 0.0).sum(1)
        # A NaN ranks above everything, so it would be hidden unless it is the label itself.
        values = torch.where(scores.isnan().any(1), torch.nan, values)
        return torch.where(ranked, values, 0.0), labelled

    def _next_best(self, scores: Scores, known: Tensor) -> Tensor:
        """Return the mean over samples of the (K+1)-th largest noised score."""
        noisy = self.training and self.noise > 0
        samples = []
        for _ in range(self.num_samples if noisy else 1):
            noise = self._draw(scores) if noisy else torch.zeros_like(scores)
            noised = torch.where(known, scores.detach() + noise, -torch.inf)
            place = noised.topk(self.average_size + 1, dim=1).indices[:, -1:]
            samples.append(scores.gather(1, place) + noise.gather(1, place))
        return torch.stack(samples).mean(0).squeeze(1)

    def _draw(self, scores: Scores) -> Tensor:
        noise = torch.randn(
            scores.shape, generator=self.generator, dtype=scores.dtype, device=scores.device
        )
        return self.noise * noise
