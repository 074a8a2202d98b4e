"""Maximum likelihood for ``Joint``, by L-BFGS; concave where all truth is known."""

from __future__ import annotations

import numpy as np

from credibly.types import Array

# Size factors are free but for this: it only keeps one that no row ever needs from running off.
_SIZE_RIDGE = 0.1


def fit_sizes(chances: Array, targets: Array, largest: int, ridge: float) -> tuple[Array, Array]:
    """Return the odds factor of each label and the factor of each number of labels."""
    import torch
    from torch.nn.functional import logsigmoid

    # float32 probabilities of exactly 0 or 1 have no log-odds; half the smallest step has.
    log_odds = torch.logit(torch.as_tensor(np.clip(chances, 2.0**-26, 1 - 2.0**-26)))
    truth = torch.as_tensor(targets.astype(np.float64))
    known = truth >= 0
    truth = truth.clamp(min=0.0)
    shift = torch.zeros(chances.shape[1], dtype=torch.float64, requires_grad=True)
    sizes = torch.zeros(largest + 1, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([shift, sizes], max_iter=300, line_search_fn="strong_wolfe")

    def loss():
        search.zero_grad()
        shifted = log_odds + shift
        chance = torch.sigmoid(shifted)
        each = truth * logsigmoid(shifted) + (1 - truth) * logsigmoid(-shifted)
        # Known labels are as they are; over unknown ones the size is summed.
        seen = _size_weights(torch.where(known, truth, chance), largest)
        model = _size_weights(chance, largest)
        factors = sizes.exp()
        likelihood = (each * known).sum() + (
            torch.log(seen @ factors) - torch.log(model @ factors)
        ).sum()
        value = (
            ridge / 2 * shift.square().sum() + _SIZE_RIDGE / 2 * sizes.square().sum() - likelihood
        )
        value.backward()
        return value

    with torch.enable_grad():
        search.step(loss)
    return np.exp(shift.detach().numpy()), np.exp(sizes.detach().numpy())


def log_likelihood(chances: Array, targets: Array, odds: Array, factors: Array) -> Array:
    """Return the log-probability of each row's known labels under fitted factors."""
    import torch

    largest = len(factors) - 1
    truth = torch.as_tensor(targets.astype(np.float64))
    known = truth >= 0
    scaled = torch.as_tensor(chances * odds)
    chance = scaled / (scaled + 1 - torch.as_tensor(chances))
    each = torch.where(truth == 1, torch.log(chance), torch.log1p(-chance))
    seen = _size_weights(torch.where(known, truth, chance), largest)
    weights = torch.as_tensor(factors)
    ratio = torch.log(seen @ weights) - torch.log(_size_weights(chance, largest) @ weights)
    return ((each * known).sum(1) + ratio).numpy()


def _size_weights(chance, largest: int):
    """Return the probability of each number of independent labels; the last is "or more"."""
    import torch

    counts = [torch.ones_like(chance[:, 0])] + [torch.zeros_like(chance[:, 0])] * largest
    for label in range(chance.shape[1]):
        one = chance[:, label]
        last = counts[largest] + counts[largest - 1] * one
        middle = [counts[size] * (1 - one) + counts[size - 1] * one for size in range(1, largest)]
        counts = [counts[0] * (1 - one), *middle, last]
    return torch.stack(counts, dim=1)
