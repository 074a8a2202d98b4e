"""The losses written from their formulas, with 60 digits, and gradients by central differences."""

from __future__ import annotations

import mpmath as mp
import torch

mp.mp.dps = 60
_STEP = mp.mpf(10) ** -22


def softplus(x):
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def sigmoid(x):
    return 1 / (1 + mp.exp(-x)) if x >= 0 else mp.exp(x) / (1 + mp.exp(x))


def bce(v, y):
    return y * softplus(-v) + (1 - y) * softplus(v)


def spa(v, y, scale_pos=1, slope_pos=1, shift_pos=0, scale_neg=5, slope_neg=3, shift_neg=1):
    v = mp.mpf(v)
    present = softplus(-slope_pos * (v - shift_pos)) / scale_pos
    absent = softplus(slope_neg * (v - shift_neg)) / scale_neg
    return y * present + (1 - y) * absent


def asymmetric(v, y, gamma_neg=4, gamma_pos=1, margin="0.05"):
    p, q = sigmoid(v), sigmoid(-v)
    shifted = max(p - mp.mpf(margin), mp.mpf(0))
    present = q**gamma_pos * softplus(-v)
    absent = -(shifted**gamma_neg) * mp.log1p(-shifted) if shifted > 0 else mp.mpf(0)
    if margin in (0, "0"):
        absent = p**gamma_neg * softplus(v)
    return y * present + (1 - y) * absent


def focal(v, y, gamma=2):
    return asymmetric(v, y, gamma, gamma, "0")


def detached_asymmetric_slope(v, y, gamma_neg=4, gamma_pos=1, margin="0.05"):
    """Slope with the focal weights held fixed, as the official training uses it."""
    p, q = sigmoid(v), sigmoid(-v)
    shifted = max(p - mp.mpf(margin), mp.mpf(0))
    present = -(q**gamma_pos) * q
    absent = shifted**gamma_neg * p * q / (1 - shifted) if shifted > 0 else mp.mpf(0)
    return y * present + (1 - y) * absent


def mean_over_known(entry):
    """A whole-matrix loss from the loss of one entry."""

    def value(scores, targets):
        pairs = [
            (v, y)
            for row_v, row_y in zip(scores, targets, strict=True)
            for v, y in zip(row_v, row_y, strict=True)
            if y >= 0
        ]
        return mp.fsum(entry(v, y) for v, y in pairs) / len(pairs)

    return value


def spa_log_odds(v):
    v = mp.mpf(v)
    up = mp.mpf(3) / 5 * sigmoid(3 * (v - 1))
    down = sigmoid(-v)
    return mp.log(up) - mp.log(down)


def pair_share(targets):
    """2/(T(T − 1)), T the number of known labels of the row."""
    known = sum(y >= 0 for y in targets)
    return mp.mpf(2) / (known * (known - 1)) if known > 1 else mp.mpf(0)


def with_label_pairs(value, log_odds, weight=1):
    """Adds the pair regularizer, pair by pair, on hard targets."""

    def total(scores, targets):
        labels = len(scores[0])
        rows = [
            pair_share(row_y)
            * mp.fsum(
                softplus(log_odds(row_v[n]) - log_odds(row_v[p]))
                for p in range(labels)
                if row_y[p] == 1
                for n in range(labels)
                if row_y[n] == 0
            )
            for row_v, row_y in zip(scores, targets, strict=True)
        ]
        known = [
            row for row, row_y in zip(rows, targets, strict=True) if any(y >= 0 for y in row_y)
        ]
        pairs = mp.fsum(known) / len(known)
        return value(scores, targets) + weight * pairs

    return total


def matrix(tensor):
    return [[mp.mpf(x) for x in row] for row in tensor.double().tolist()]


def value_of(reference, scores, targets):
    """The loss as a float64."""
    return float(reference(matrix(scores), matrix(targets)))


def gradient_of(reference, scores, targets):
    """Its gradient, an entry at a time, as a float64 tensor."""
    v, y = matrix(scores), matrix(targets)
    gradient = torch.zeros(scores.shape, dtype=torch.float64)
    for i, row in enumerate(v):
        for j, centre in enumerate(row):
            row[j] = centre + _STEP
            above = reference(v, y)
            row[j] = centre - _STEP
            below = reference(v, y)
            row[j] = centre
            gradient[i, j] = float((above - below) / (2 * _STEP))
    return gradient


def entry_slope(entry, v, y):
    """Slope of one entry's loss; exact far into the tails, because nothing is summed."""
    with mp.workdps(400):
        v, y, step = mp.mpf(v), mp.mpf(y), mp.mpf(10) ** -100
        return (entry(v + step, y) - entry(v - step, y)) / (2 * step)
