"""Compiled loops of the label mixture: its likelihood, the weights of each row, and the scan."""

from __future__ import annotations

import numpy as np

from credibly.compiled import compiled
from credibly.retrieve.memory_kernels import count_above, keep_best, sum_of

_BLOCK = 256
_UNROLLED = 6


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
def _add_pair(present, more, other_more, weights, other_weights, out):
    """Add two parts' shares: weight / Π (1 + p (e − 1)) over six conditions; one division."""
    one, two, three = present[0], present[1], present[2]
    four, five, six = present[3], present[4], present[5]
    for i in range(out.size):
        divisor = (one[i] * more[0] + 1.0) * (two[i] * more[1] + 1.0)
        divisor *= (three[i] * more[2] + 1.0) * (four[i] * more[3] + 1.0)
        divisor *= (five[i] * more[4] + 1.0) * (six[i] * more[5] + 1.0)
        other = (one[i] * other_more[0] + 1.0) * (two[i] * other_more[1] + 1.0)
        other *= (three[i] * other_more[2] + 1.0) * (four[i] * other_more[3] + 1.0)
        other *= (five[i] * other_more[4] + 1.0) * (six[i] * other_more[5] + 1.0)
        out[i] += (weights[i] * other + other_weights[i] * divisor) / (divisor * other)


@compiled(error_model="numpy", nogil=True, fastmath={"contract", "reassoc"})
def _add_one(present, more, weights, out):
    """Add one part's share: weight / Π (1 + p (e − 1)) over six conditions."""
    one, two, three = present[0], present[1], present[2]
    four, five, six = present[3], present[4], present[5]
    for i in range(out.size):
        divisor = (one[i] * more[0] + 1.0) * (two[i] * more[1] + 1.0)
        divisor *= (three[i] * more[2] + 1.0) * (four[i] * more[3] + 1.0)
        divisor *= (five[i] * more[4] + 1.0) * (six[i] * more[5] + 1.0)
        out[i] += weights[i] / divisor


@compiled(error_model="numpy", nogil=True, fastmath={"contract", "reassoc"})
def _add_many(present, more, weights, divisor, out):
    """The same for any number of conditions."""
    divisor[:] = 1.0
    for c in range(more.size):
        for i in range(divisor.size):
            divisor[i] *= present[c, i] * more[c] + 1.0
    for i in range(out.size):
        out[i] += weights[i] / divisor[i]


@compiled(error_model="numpy", nogil=True)
def conjunction(columns, row_parts, places, wanted, factors, top, values):
    """Return the best values of a conjunction, their rows and the total over all rows.

    The sum of ``Joint`` over its parts, from the columns of the
    conjunction's labels alone. ``values`` takes the value of every row, or is empty.
    """
    asked, rows, parts = places.size, columns.shape[1], row_parts.shape[0] - 1
    # Six conditions at least: those that are not there have p = 0 and multiply by one.
    present = np.zeros((max(asked, _UNROLLED), _BLOCK))
    held, divisor, block = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    kept_values = np.empty(top + 2 * _BLOCK)
    kept_rows = np.empty(top + 2 * _BLOCK, np.int64)
    filled, bar, total = 0, -1.0, 0.0
    more = np.zeros((parts, max(asked, _UNROLLED)))
    more[:, :asked] = factors - 1.0
    scale = np.ones(parts)
    for c in range(asked):
        if wanted[c]:
            scale *= factors[:, c]
    scaled = np.empty((parts, _BLOCK))
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        size = stop - start
        out = block[:size]
        held[:] = 1.0
        out[:] = 0.0
        for c in range(asked):
            column, own = columns[places[c], start:stop], present[c]
            if wanted[c]:
                for i in range(size):
                    own[i] = np.float64(column[i])
                    held[i] *= own[i]
            else:
                for i in range(size):
                    own[i] = np.float64(column[i])
                    held[i] *= 1.0 - own[i]
        for k in range(parts):
            own = row_parts[k, start:stop]
            for i in range(size):
                scaled[k, i] = own[i] * scale[k]
        k = 0
        if asked <= _UNROLLED:
            while k + 1 < parts:
                _add_pair(present, more[k], more[k + 1], scaled[k], scaled[k + 1], out)
                k += 2
            if k < parts:
                _add_one(present, more[k], scaled[k], out)
        else:
            for part in range(parts):
                _add_many(present, more[part], scaled[part], divisor[:size], out)
        for i in range(size):
            out[i] *= held[i]
        if not wanted.any():
            empty = row_parts[parts, start:stop]
            for i in range(size):
                out[i] += empty[i]
        for i in range(size):
            out[i] = max(0.0, min(1.0, out[i]))
        total += sum_of(out)
        if values.size:
            values[start:stop] = out
        if count_above(out, bar) > 0:
            for i in range(size):
                if out[i] > bar:
                    kept_values[filled], kept_rows[filled] = out[i], start + i
                    filled += 1
            if filled >= top and (bar < 0 or filled > top + _BLOCK):
                filled = keep_best(kept_values, kept_rows, filled, top)
                bar = kept_values[filled - 1]
    filled = keep_best(kept_values, kept_rows, filled, top)
    return kept_values[:filled].copy(), kept_rows[:filled].copy(), total
