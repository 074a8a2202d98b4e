"""The scalar that trains, ``loss(scores, targets)``, is the right-hand side that its source prints.

References are plain numpy, written from the sources' formulas and reductions, one per loss.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credibly import losses as cl

ROWS, LABELS = 7, 5
generator = np.random.default_rng(2)
Z = generator.normal(size=(ROWS, LABELS))
Z2 = generator.normal(size=(ROWS, LABELS))
MANY = (generator.random((ROWS, LABELS)) < 0.4).astype(float)
MANY[:, 0], MANY[:2, 0], MANY[0] = 0.0, 1.0, [1, 0, 0, 1, 0]
SOME = np.where(np.arange(ROWS)[:, None] < 5, np.maximum(MANY, np.eye(LABELS)[1]), 0.0)
OBSERVED = generator.integers(LABELS, size=ROWS)
ONE = np.eye(LABELS)[OBSERVED]


def softplus(x):
    return np.log(1 + np.exp(x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_softmax(z):
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def log_loss(z, y):
    return y * softplus(-z) + (1 - y) * softplus(z)


def focal(z, y, gamma_pos=2, gamma_neg=2, margin=0.0):
    p = sigmoid(z)
    shifted = np.maximum(p - margin, 0)
    present = -((1 - p) ** gamma_pos) * np.log(p)
    return y * present - (1 - y) * shifted**gamma_neg * np.log(1 - shifted)


def spa(z, y):
    return y * softplus(-z) + (1 - y) * softplus(3 * (z - 1)) / 5


def spa_log_odds(z):
    return np.log(3 / 5 * sigmoid(3 * (z - 1)) / sigmoid(-z))


def pairs(log_odds, y):
    """Eq. 20 of Cheng & Vasconcelos (2024), averaged over rows."""
    total = 0.0
    for u, labels in zip(log_odds, y, strict=True):
        present, absent = u[labels == 1], u[labels == 0]
        total += softplus(absent[:, None] - present).sum() * 2 / (len(u) * (len(u) - 1))
    return total / len(y)


def assume_negative(z, y):
    """Eq. 5 of Garcin et al. (2023): a sum over labels, averaged over the batch."""
    p = sigmoid(z)
    return -(y * np.log(p) + (1 - y) * np.log(1 - p) / (LABELS - 1)).sum(1).mean()


def cross_entropy(z, y):
    return -(y / y.sum(1, keepdims=True) * log_softmax(z)).sum(1).mean()


def uniform(z):
    """KL of the uniform distribution to the softmax."""
    return (-np.log(LABELS) - log_softmax(z)).mean()


def asymmetric_softmax(z, y, gamma_pos, gamma_neg, smoothing):
    """``ASLSingleLabel`` of the official code of Ben-Baruch et al. (2021)."""
    p = np.exp(log_softmax(z))
    weight = np.where(y == 1, (1 - p) ** gamma_pos, p**gamma_neg)
    goal = (1 - smoothing) * y + smoothing / LABELS
    return -(goal * weight * np.log(p)).sum(1).mean()


def quasibinary(z, y):
    """Eqs. 10–12 of Liao et al. (2020), the objective with its sign turned."""
    log_q = z - np.log(np.exp(z).sum() / y.sum())
    return (-y * log_q + np.maximum(log_q, 0)).sum() / len(z)


def two_way(z, y, t_pos=4.0):
    """Eq. 17 of Kobayashi (2023): rows, and columns."""
    total = 0.0
    for scores, targets in ((z, y), (z.T, y.T)):
        terms = []
        for x, labels in zip(scores, targets, strict=True):
            if 0 < labels.sum() < len(labels):
                weak = t_pos * np.log(np.exp(-x[labels == 1] / t_pos).sum())
                terms.append(softplus(np.log(np.exp(x[labels == 0]).sum()) + weak))
        total += np.mean(terms)
    return total


def expected_positive(z, y, size=2.0, beta=1 / LABELS):
    """Eq. 8 of Garcin et al. (2023)."""
    observed = -np.log(sigmoid(z)[y == 1]).mean()
    return observed + beta * (sigmoid(z).sum(1).mean() - size) ** 2


def average_k(z, y, size=2.0, alpha=0.5):
    """Eq. 15 of Garcin et al. (2023); the second head proposes."""
    ml, sccp = z[:, :LABELS], z[:, LABELS:]
    shares = np.where(y == 1, -np.inf, log_softmax(sccp))
    bar = np.sort(shares.ravel())[-round((size - 1) * len(z))]
    proposed, rejected = shares >= bar, (shares < bar) & (y == 0)
    total = cross_entropy(sccp, y) - np.log(sigmoid(ml)[y == 1]).mean()
    total -= alpha * np.log(sigmoid(ml)[proposed]).mean()
    return total - alpha * np.log(1 - sigmoid(ml)[rejected]).mean()


def role(z, y):
    """Cole et al. (2021), Eqs. 8–9, for the estimates that the loss holds."""
    estimates = ROLE.estimates(torch.arange(ROWS)).double().numpy()
    total = 0.0
    for f, given in ((sigmoid(z), estimates), (estimates, sigmoid(z))):
        cost = -given * np.log(f) - (1 - given) * np.log(1 - f) - y * np.log(f)
        total += cost.mean() + ((f.sum(1).mean() - 2.0) / LABELS) ** 2
    return total / 2


def top_k(z, y, size=2):
    """Garcin et al. (2022), without noise."""
    next_best = np.sort(z, 1)[:, -(size + 1)]
    return np.maximum(0, 1 + next_best - z[y == 1]).mean()


def ranking(z, y, ramp=None, single=0.0):
    """WARP, Gong et al. (2014), with exact ranks; RML with a ramp. Divided by the labels: ours."""
    total = 0.0
    for v, labels in zip(z, y, strict=True):

        def charge(t):
            hinge = np.maximum(0, 1 - t)
            return hinge if ramp is None else hinge - np.maximum(0, ramp - t)

        for score in v[labels == 1]:
            gaps = score - v[labels == 0]
            total += sum(1 / k for k in range(1, (gaps < 1).sum() + 1)) * charge(gaps).sum()
        total += single * charge(np.where(labels == 1, v, -v)).sum()
    return total / y.size


BOTH_HEADS = np.concatenate([Z, Z2], 1)
ROLE, ROLE_SUM = (
    cl.OnlineEstimation(ROWS, LABELS, average_size=2.0, reduction=reduction).double()
    for reduction in ("mean", "rows")
)
PRINTED = [
    (cl.BCE(), Z, MANY, log_loss(Z, MANY).mean()),
    (cl.BCE(pos_weight=3.0), Z, MANY, (log_loss(Z, MANY) * (1 + 2 * MANY)).mean()),
    (cl.BCE(reduction="rows"), Z, MANY, log_loss(Z, MANY).sum(1).mean()),
    (cl.SPA(), Z, MANY, spa(Z, MANY).mean()),
    (cl.SPA(reduction="rows"), Z, MANY, spa(Z, MANY).sum(1).mean()),
    (cl.Focal(), Z, MANY, focal(Z, MANY).mean()),
    (cl.Asymmetric(), Z, MANY, focal(Z, MANY, 1, 4, 0.05).mean()),
    # The official code of ASL sums over all entries.
    (cl.Asymmetric(reduction="sum"), Z, MANY, focal(Z, MANY, 1, 4, 0.05).sum()),
    (cl.AsymmetricSingleLabel(1.0, 3.0, 0.2), Z, ONE, asymmetric_softmax(Z, ONE, 1.0, 3.0, 0.2)),
    (cl.AssumeNegative(), Z, ONE, assume_negative(Z, ONE)),
    (cl.Softmax(), Z, ONE, cross_entropy(Z, ONE)),
    # Lee et al. (2018), Eq. 1, and Hein et al. (2019): two means with a weight between them.
    (cl.Softmax("uniform", 0.5), Z, SOME, cross_entropy(Z[:5], SOME[:5]) + 0.5 * uniform(Z[5:])),
    (
        cl.Softmax("max_confidence", 2.0),
        Z,
        SOME,
        cross_entropy(Z[:5], SOME[:5]) + 2.0 * log_softmax(Z[5:]).max(1).mean(),
    ),
    (cl.Quasibinary(), Z, MANY, quasibinary(Z, MANY)),
    (cl.TwoWay(), Z, MANY, two_way(Z, MANY)),
    (cl.AverageK(2.0, alpha=0.5), BOTH_HEADS, ONE, average_k(BOTH_HEADS, ONE)),
    (cl.ExpectedPositive(2.0), Z, ONE, expected_positive(Z, ONE)),
    (cl.ExpectedPositive(2.0, weight=0.3), Z, ONE, expected_positive(Z, ONE, beta=0.3)),
    (ROLE, Z, ONE, lambda: role(Z, ONE)),
    (ROLE_SUM, Z, ONE, lambda: LABELS * role(Z, ONE)),
    (cl.BalancedTopK(2, noise=0.0), Z, ONE, top_k(Z, ONE)),
    (cl.Warp(), Z, MANY, ranking(Z, MANY)),
    (cl.RobustMultiLabel(), Z, MANY, ranking(Z, MANY, -0.8, 5.0)),
    (cl.JointMixture(LABELS, 1), np.pad(Z, [(0, 0), (0, 2)]), MANY, log_loss(Z, MANY).mean()),
    # Eq. 21 of Cheng & Vasconcelos (2024): the mean over labels, and the pairs.
    (cl.LabelPairs(cl.SPA()), Z, MANY, spa(Z, MANY).mean() + pairs(spa_log_odds(Z), MANY)),
    (
        cl.TwoWayTerm(cl.BCE(), 2.0),
        Z,
        MANY,
        log_loss(Z, MANY).mean() + 2.0 / LABELS * two_way(Z, MANY),
    ),
    (cl.Published(cl.Focal()), Z, MANY, focal(Z, MANY).mean()),
    (cl.Composite(lambda v: torch.exp(-v), torch.exp), Z, MANY, np.exp((1 - 2 * MANY) * Z).mean()),
]


@pytest.mark.parametrize(
    ("loss", "scores", "targets", "printed"),
    PRINTED,
    ids=lambda each: str(each)[:60] if isinstance(each, cl.Loss) else "",
)
def test_the_loss_that_trains_is_the_printed_one(loss, scores, targets, printed):
    if isinstance(loss, cl.JointMixture):
        with torch.no_grad():
            loss.offsets.zero_()
        loss.double()
    value = loss.train()(torch.tensor(scores), torch.tensor(targets)).item()
    printed = printed() if callable(printed) else printed  # estimates move as rows are seen
    np.testing.assert_allclose(value, printed, rtol=1e-12)


def test_every_loss_has_a_printed_form():
    exported = {name for name in cl.__all__ if isinstance(getattr(cl, name), type)}
    families = {"Audit", "Loss", "BinaryLoss", "RowLoss", "BatchLoss"}
    assert {type(loss).__name__ for loss, *_ in PRINTED} == exported - families
