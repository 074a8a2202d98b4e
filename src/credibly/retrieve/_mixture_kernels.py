"""Compiled loops of the label mixture: its likelihood, the weights of each row, and the scan."""

from __future__ import annotations

import numpy as np

from credibly.compiled import compiled

_BLOCK = 256


@compiled(error_model="numpy", nogil=True)
def likelihood(chances, truths, factors, weights, empty, shares, temper, negligible):
    """Return log-likelihood minus that of independent labels, per row, and its gradients.

    The gradients are by the logarithms of ``factors`` (M, L), by ``weights`` (M,), by ``empty``, by
    the ``shares`` (K,) that scale the empty set, and by ``temper``. Part ``k`` and part ``K + k``
    belong to component ``k``. Labels of probability below ``negligible`` that are not seen present
    change nothing.
    """
    rows, labels = chances.shape
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
            if chance < negligible and truth != 1:
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
            # What the gain changes by where this component's evidence counts more.
            gain = empty * shares[k] * scales[k] * none_gain
            for m in range(k, parts, components):
                gain += seen[m] - prior[m]
            by_temper += gain * logs[k]
            scales[k] = (temper - 1.0) * gain
        for j in range(labels):
            truth = truths[i, j]
            if chances[i, j] < negligible and truth != 1:
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
def row_weights(columns, places, factors, weights, empty, shares, temper):
    """Return the weight of every part in every row, (M + 1, rows); the last is the empty set's.

    Label ``j`` of the model is row ``places[j]`` of ``columns``.
    """
    labels, rows = places.size, columns.shape[1]
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


@compiled(error_model="numpy", nogil=True, fastmath={"contract", "reassoc"})
def _multiply_three(present, more, first, divisor):
    """Multiply the normalisers 1 + p (e − 1) of up to three conditions into ``divisor``."""
    left = more.size - first
    one, slope_one = present[first], more[first]
    if left == 1:
        for i in range(divisor.size):
            divisor[i] *= one[i] * slope_one + 1.0
        return
    two, slope_two = present[first + 1], more[first + 1]
    if left == 2:
        for i in range(divisor.size):
            divisor[i] *= (one[i] * slope_one + 1.0) * (two[i] * slope_two + 1.0)
        return
    three, slope_three = present[first + 2], more[first + 2]
    for i in range(divisor.size):
        pair = (one[i] * slope_one + 1.0) * (two[i] * slope_two + 1.0)
        divisor[i] *= pair * (three[i] * slope_three + 1.0)


@compiled(error_model="numpy", nogil=True, fastmath={"contract", "reassoc"})
def _add_share(weights, factor, divisor, out):
    for i in range(out.size):
        out[i] += weights[i] * factor / divisor[i]


@compiled(error_model="numpy", nogil=True)
def conjunction(columns, row_parts, places, wanted, factors):
    """Return the probability of a conjunction for every row, from its labels' columns alone.

    The sum of ``MixtureJoint`` over its parts, with one division per part.
    """
    asked, rows, parts = places.size, columns.shape[1], row_parts.shape[0] - 1
    values = np.empty(rows)
    present = np.zeros((asked, _BLOCK))  # of the last block, the part beyond is never read
    held, divisor = np.empty(_BLOCK), np.empty(_BLOCK)
    more = factors - 1.0
    scale = np.ones(parts)
    for c in range(asked):
        if wanted[c]:
            scale *= factors[:, c]
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        size = stop - start
        out = values[start:stop]
        held[:] = 1.0
        out[:] = 0.0
        for c in range(asked):
            column, own = columns[places[c], start:stop], present[c]
            for i in range(size):
                own[i] = np.float64(column[i])
            if wanted[c]:
                for i in range(size):
                    held[i] *= own[i]
            else:
                for i in range(size):
                    held[i] *= 1.0 - own[i]
        for k in range(parts):
            divisor[:] = 1.0
            for first in range(0, asked, 3):
                _multiply_three(present, more[k], first, divisor)
            _add_share(row_parts[k, start:stop], scale[k], divisor[:size], out)
        for i in range(size):
            out[i] *= held[i]
        if not wanted.any():
            empty = row_parts[parts, start:stop]
            for i in range(size):
                out[i] += empty[i]
        for i in range(size):
            out[i] = max(0.0, min(1.0, out[i]))
    return values
