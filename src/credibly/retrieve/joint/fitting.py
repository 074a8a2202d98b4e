"""Fit ``Joint`` by penalised maximum likelihood: compiled loops over rows, and L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from credibly.compiled import compiled
from credibly.types import Array

_BLOCK = 256
_NEGLIGIBLE = 1e-6  # a label with a lower probability changes a log-likelihood by less than 1e-6


@compiled(error_model="numpy", nogil=True)
def likelihood(chances, truths, terms):
    """Return log-likelihood minus that of independent labels, per row, and its gradients.

    The gradients are with respect to the logarithms of ``factors`` (M, L), ``weights`` (M,),
    ``empty``, the ``shares`` (K,) that scale the empty set, and ``temper``. Parts ``k`` and
    ``K + k`` belong to component ``k``. Labels that are not known to be present and have a
    negligible probability are skipped.
    """
    rows, labels = chances.shape
    factors, weights, empty, shares, temper = terms
    parts, components = weights.size, shares.size
    gains = np.zeros(rows)
    by_factors = np.zeros((labels, parts))
    by_weights, by_shares = np.zeros(parts), np.zeros(components)
    by_empty, by_temper = 0.0, 0.0
    by_label = np.ascontiguousarray(factors.T)
    odds = np.empty((labels, parts))
    prior, seen = np.empty(parts), np.empty(parts)
    logs, scales = np.empty(components), np.empty(components)
    for i in range(rows):
        prior[:] = 1.0
        seen[:] = 1.0
        none_prior, none_seen, none = 1.0, 1.0, True
        for j in range(labels):
            chance, truth = chances[i, j], truths[i, j]
            if chance < _NEGLIGIBLE and truth != 1:
                continue
            none_prior *= 1.0 - chance
            for k in range(parts):
                scaled = chance * by_label[j, k]
                total = scaled + (1.0 - chance)
                prior[k] *= total
                odds[j, k] = scaled / total
            if truth == 1:
                none = False
                for k in range(parts):
                    seen[k] *= by_label[j, k]
            elif truth != 0:
                none_seen *= 1.0 - chance
                for k in range(parts):
                    seen[k] *= chance * by_label[j, k] + (1.0 - chance)
        scale = 0.0
        for k in range(components):
            logs[k] = np.log(prior[k])
            scales[k] = np.exp((temper - 1.0) * logs[k])
            scale += shares[k] * scales[k]
        everything = empty * scale * none_prior
        observed = empty * scale * none_seen if none else 0.0
        for k in range(parts):
            prior[k] *= scales[k % components]
            seen[k] *= scales[k % components]
            everything += weights[k] * prior[k]
            observed += weights[k] * seen[k]
        gains[i] = np.log(observed) - np.log(everything)
        none_gain = (none_seen / observed if none else 0.0) - none_prior / everything
        by_empty += scale * none_gain
        for k in range(parts):
            by_weights[k] += seen[k] / observed - prior[k] / everything
            prior[k] *= weights[k] / everything
            seen[k] *= weights[k] / observed
        for k in range(components):
            by_shares[k] += empty * scales[k] * none_gain
            # The change of the gain when this component's evidence gets more weight.
            gain = empty * shares[k] * scales[k] * none_gain
            for m in range(k, parts, components):
                gain += seen[m] - prior[m]
            by_temper += gain * logs[k]
            scales[k] = (temper - 1.0) * gain
        for j in range(labels):
            truth = truths[i, j]
            if chances[i, j] < _NEGLIGIBLE and truth != 1:
                continue
            if truth == 1:
                for k in range(parts):
                    by_factors[j, k] += seen[k] - prior[k] * odds[j, k]
            elif truth == 0:
                for k in range(parts):
                    by_factors[j, k] -= prior[k] * odds[j, k]
            else:
                for k in range(parts):
                    by_factors[j, k] += (seen[k] - prior[k]) * odds[j, k]
            for k in range(components):
                by_factors[j, k] += scales[k] * odds[j, k]
    return gains, by_factors, by_weights, by_empty, by_shares, by_temper


@compiled(error_model="numpy", nogil=True)
def row_weights(columns, places, terms):
    """Return the weight of every part in every row, (M + 1, rows); the last part is the empty set.

    Label ``j`` of the model is row ``places[j]`` of ``columns``.
    """
    labels, rows = places.size, columns.shape[1]
    factors, weights, empty, shares, temper = terms
    parts, components = weights.size, shares.size
    result = np.empty((parts + 1, rows))
    total, scale = np.empty(_BLOCK), np.empty(_BLOCK)
    tempered = np.empty((components, _BLOCK))
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        none = result[parts, start:stop]
        none[:] = 1.0
        total[:], scale[:] = 0.0, 0.0
        for j in range(labels):
            present = columns[places[j], start:stop]
            for i in range(none.size):
                none[i] *= 1.0 - np.float64(present[i])
        for k in range(parts):
            part = result[k, start:stop]
            part[:] = 1.0
            for j in range(labels):
                more = factors[k, j] - 1.0
                present = columns[places[j], start:stop]
                for i in range(part.size):
                    part[i] *= np.float64(present[i]) * more + 1.0
            own = tempered[k % components]
            if k < components:
                for i in range(part.size):
                    own[i] = 1.0 if temper == 1.0 else part[i] ** (temper - 1.0)
                    scale[i] += own[i] * shares[k]
            for i in range(part.size):
                part[i] *= own[i] * weights[k]
                total[i] += part[i]
        for i in range(none.size):
            none[i] *= scale[i] * empty
            total[i] += none[i]
        for k in range(parts + 1):
            part = result[k, start:stop]
            for i in range(part.size):
                part[i] /= total[i]
    return result


NODE = 0.5
"""Base of the bend of the size factor, h(s) = λˢ (1 − bend · NODEˢ)."""

_STEEPEST = 0.999  # share of the bend at which a set of one label would be impossible
_LIMIT = 5.0  # on log-factors, which keeps factors below 150
_ODDS_RIDGE = 30.0  # keeps odds near the predicted ones
_STEPS = 200  # limit on the number of L-BFGS steps
_TOLERANCE = 1e-6  # relative change of the objective at which the search ends
_SHAPE = 4  # slope, bend, log of the empty set's factor, τ − 1
_TEMPER_RIDGE = 10.0  # keeps τ near 1 unless the truth contradicts it
_WEAK_RIDGE = 0.02  # keeps parameters finite that no row determines


@dataclass(frozen=True)
class Parameters:
    """The fitted parameters: one factor per component and label, and those of the size factor."""

    components: Array  # (K, L) log-factors of the odds
    shares: Array  # (K,) positive, sum 1
    slope: float  # log λ
    bend: float
    empty: float  # factor of the empty set
    temper: float = 1.0  # power of a component's evidence in its weight, τ

    def parts(self) -> tuple[Array, Array, float]:
        """Return factors (M, L), signed weights (M,) and the extra weight of the empty set."""
        factors = np.exp(self.components + self.slope)
        if self.bend == 0:
            return factors, self.shares, self.empty - 1.0
        factors = np.concatenate([factors, factors * NODE])
        weights = np.concatenate([self.shares, -self.bend * self.shares])
        return factors, weights, self.empty - (1.0 - self.bend)

    def terms(self) -> tuple[Array, Array, float, Array, float]:
        """Return the arguments of the compiled loops over rows."""
        return (*self.parts(), self.shares, self.temper)


def fit(chances: Array, truths: Array, components: int, ridge: float, seed: int) -> Parameters:
    """Return the parameters that maximise the penalised log-likelihood of ``truths``.

    Args:
        chances: probabilities strictly between 0 and 1, (rows, labels).
        truths: 1, 0, or −1 for unknown.
        components: number of products $K$; a single one has no pair terms.
        ridge: penalty on the square of the components' log-factors.
        seed: seed of the random start.
    """
    from scipy.optimize import minimize

    layout = _ParameterVector(components, chances.shape[1])
    found = minimize(
        layout.cost,
        layout.start(seed),
        (chances, truths, ridge),
        jac=True,
        method="L-BFGS-B",
        bounds=layout.bounds(),
        options={"maxiter": _STEPS, "ftol": _TOLERANCE},
    )
    return layout.parameters(found.x)


class _ParameterVector:
    """One flat vector: the shape (slope, bend, log ρ, τ − 1), odds, shares, components.

    Bounds fix the values that are not fitted: of one component, τ, its share and its own factors;
    of several, the bend, because several components can model the number of labels without it.
    """

    def __init__(self, components: int, labels: int) -> None:
        self.components, self.labels = components, labels
        self.cuts = np.cumsum([_SHAPE, labels, components])
        self.size = int(self.cuts[-1]) + components * labels

    def start(self, seed: int) -> Array:
        start = np.zeros(self.size)
        if self.components == 1:
            start[1] = 0.1  # at 0 the second half of the parts is missing
            return start
        normal = np.random.default_rng(seed).standard_normal(self.components * self.labels)
        start[self.cuts[-1] :] = 0.5 * normal
        return start

    def bounds(self) -> Array:
        bounds = np.tile([-_LIMIT, _LIMIT], (self.size, 1))
        bounds[2] = -12.0, 12.0
        if self.components == 1:
            bounds[3], bounds[self.cuts[1] :] = 0.0, 0.0
        else:
            bounds[1], bounds[3] = 0.0, (-1.0, 0.5)
        return bounds

    def parameters(self, vector: Array) -> Parameters:
        (slope, bend, empty, temper), odds, shares, offsets = np.split(vector, self.cuts)
        share = np.exp(shares - shares.max())
        return Parameters(
            components=odds + offsets.reshape(self.components, self.labels),
            shares=share / share.sum(),
            slope=float(slope),
            bend=float(_STEEPEST / NODE * np.tanh(bend)),
            empty=float(np.exp(empty)),
            temper=1.0 + float(temper),
        )

    def cost(
        self, vector: Array, chances: Array, truths: Array, ridge: float
    ) -> tuple[float, Array]:
        """Return the penalised negative log-likelihood, and its gradient."""
        found = self.parameters(vector)
        gains, *slopes = likelihood(chances, truths, found.terms())
        by_factor, by_weight, by_empty, by_share, by_temper = slopes
        by_factor = by_factor.T
        if found.bend == 0:  # the bend is fixed, and the second half of the parts is missing
            by_factor = np.concatenate([by_factor, np.zeros_like(by_factor)])
            by_weight = np.concatenate([by_weight, np.zeros_like(by_weight)])
        first, second = np.split(by_weight, 2)
        by_offset = np.add(*np.split(by_factor, 2))
        by_bend = (by_empty - found.shares @ second) * (1.0 - np.tanh(vector[1]) ** 2)
        by_share = found.shares * (first - found.bend * second + by_share)
        by_shape = [by_offset.sum(), _STEEPEST / NODE * by_bend, by_empty * found.empty, by_temper]
        gradient = [by_shape, by_offset.sum(axis=0), by_share, by_offset.ravel()]
        penalty = np.full(self.size, ridge)
        penalty[: self.cuts[-1]] = _WEAK_RIDGE
        penalty[3], penalty[_SHAPE : self.cuts[1]] = _TEMPER_RIDGE, _ODDS_RIDGE
        value = float(penalty @ vector**2) / 2 - gains.sum()
        return value, penalty * vector - np.concatenate(gradient)
