"""Compiled loops over columns in memory: the full scan, and the search that stops early.

Both keep the ``top`` best rows by (probability down, row up) and follow the arithmetic of
``_diagram``. A NaN is never in the answer: it compares above no value.
"""

from __future__ import annotations

import numpy as np

from credibly.compiled import compiled

_BLOCK = 256  # all nodes of a block stay in the first-level cache


@compiled(error_model="numpy", nogil=True)
def _node(present, label_high, label_low, values, out):
    """Evaluate one node on one block of rows; mirrors ``_diagram._node_value``."""
    rows = present.size
    high, low = values[label_high], values[label_low]
    if label_high == 0:
        if label_low == 1:
            for i in range(rows):
                out[i] = 1.0 - np.float64(present[i])
        else:
            for i in range(rows):
                out[i] = (1.0 - np.float64(present[i])) * low[i]
    elif label_low == 0:
        if label_high == 1:
            for i in range(rows):
                out[i] = np.float64(present[i])
        else:
            for i in range(rows):
                out[i] = np.float64(present[i]) * high[i]
    else:  # multiplying by the constant 1 is exact, so 0/1 terms need no cases of their own
        for i in range(rows):
            held = np.float64(present[i])
            out[i] = held * high[i] + (1.0 - held) * low[i]


@compiled(error_model="numpy", nogil=True, fastmath={"reassoc", "nsz"})
def sum_of(values):
    """Return the sum of a block."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total


@compiled(error_model="numpy", nogil=True)
def count_above(values, bar):
    """Return how many values of a block are above ``bar``."""
    above = 0
    for i in range(values.size):
        above += values[i] > bar
    return above


@compiled(error_model="numpy", nogil=True)
def keep_best(values, rows, filled, top):
    """Sort the candidates by (value down, row up) and keep ``top``; return how many remain."""
    by_row = np.argsort(rows[:filled])
    by_value = np.argsort(-values[:filled][by_row], kind="mergesort")
    kept = min(top, filled)
    order = by_row[by_value[:kept]]
    best_values, best_rows = values[order], rows[order]
    values[:kept], rows[:kept] = best_values, best_rows
    return kept


@compiled(error_model="numpy", nogil=True)
def scan(columns, node_labels, node_highs, node_lows, top):
    """Evaluate a diagram on every row; return the best values, their rows and the total."""
    nodes, rows = node_labels.size, columns.shape[1]
    values = np.empty((nodes + 2, _BLOCK))
    values[0], values[1] = 0.0, 1.0
    kept_values = np.empty(top + 2 * _BLOCK)
    kept_rows = np.empty(top + 2 * _BLOCK, np.int64)
    filled, bar, total = 0, -1.0, 0.0
    for start in range(0, rows, _BLOCK):
        size = min(_BLOCK, rows - start)
        for node in range(nodes):
            present = columns[node_labels[node], start : start + size]
            _node(present, node_highs[node], node_lows[node], values, values[node + 2])
        block = values[nodes + 1, :size]
        total += sum_of(block)
        # Rows come in order, so a later row that only equals the bar never enters.
        if count_above(block, bar) > 0:
            for i in range(size):
                if block[i] > bar:
                    kept_values[filled], kept_rows[filled] = block[i], start + i
                    filled += 1
            if filled >= top and (bar < 0 or filled > top + _BLOCK):
                filled = keep_best(kept_values, kept_rows, filled, top)
                bar = kept_values[filled - 1]
    filled = keep_best(kept_values, kept_rows, filled, top)
    return kept_values[:filled].copy(), kept_rows[:filled].copy(), total


@compiled(error_model="numpy", nogil=True)
def best_of(values, top):
    """Return the largest values with their rows, and the total; ``values`` has one per row."""
    kept_values = np.empty(top + 2 * _BLOCK)
    kept_rows = np.empty(top + 2 * _BLOCK, np.int64)
    filled, bar, total = 0, -1.0, 0.0
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        total += sum_of(block)
        if count_above(block, bar) > 0:
            for i in range(block.size):
                if block[i] > bar:
                    kept_values[filled], kept_rows[filled] = block[i], start + i
                    filled += 1
            if filled >= top and (bar < 0 or filled > top + _BLOCK):
                filled = keep_best(kept_values, kept_rows, filled, top)
                bar = kept_values[filled - 1]
    filled = keep_best(kept_values, kept_rows, filled, top)
    return kept_values[:filled].copy(), kept_rows[:filled].copy(), total


@compiled(error_model="numpy", nogil=True)
def count_known(columns, targets, labels, node_labels, node_highs, node_lows):
    """Find rows whose truth is known for every label, with expected and real hits among them."""
    nodes, rows = node_labels.size, columns.shape[1]
    values = np.empty((nodes + 2, _BLOCK))
    truths = np.empty((nodes + 2, _BLOCK))
    values[0], values[1], truths[0], truths[1] = 0.0, 1.0, 0.0, 1.0
    known = np.ones(rows, np.bool_)
    expected, hits = 0.0, 0
    for start in range(0, rows, _BLOCK):
        stop = min(start + _BLOCK, rows)
        seen = known[start:stop]
        for label in labels:
            truth = targets[label, start:stop]
            for i in range(truth.size):
                seen[i] &= (truth[i] == 0) | (truth[i] == 1)
        for node in range(nodes):
            label, high, low = node_labels[node], node_highs[node], node_lows[node]
            _node(columns[label, start:stop], high, low, values, values[node + 2])
            _node(targets[label, start:stop], high, low, truths, truths[node + 2])
        for i in range(stop - start):
            expected += values[nodes + 1, i] if seen[i] else 0.0
            hits += seen[i] and truths[nodes + 1, i] == 1.0
    return known, expected, hits


@compiled(error_model="numpy", nogil=True)
def walk(columns, order, labels, wanted, driver, top, visits):
    """Find the best rows of a conjunction, in descending order of one wanted label.

    No factor is above 1, so a product never exceeds the probability of the label walked along:
    once that falls below the ``top``-th best, no later row can enter. Returns one row fewer than
    none (``filled = -1``) where the walk did not end within ``visits`` rows.
    """
    last = labels.size - 1
    size = max(4 * top, 64)
    kept_values, kept_rows = np.empty(size), np.empty(size, np.int64)
    filled, bar, full = 0, -1.0, False
    for step in range(order.size):
        row = order[step]
        if full and np.float64(columns[driver, row]) < bar:
            break
        if step == visits:
            return kept_values[:0].copy(), kept_rows[:0].copy(), -1
        value = np.float64(columns[labels[last], row])
        if not wanted[last]:
            value = 1.0 - value
        for place in range(last - 1, -1, -1):
            factor = np.float64(columns[labels[place], row])
            value = (factor if wanted[place] else 1.0 - factor) * value
        if value >= bar:
            kept_values[filled], kept_rows[filled] = value, row
            filled += 1
            if filled == size or (not full and filled == top):
                filled = keep_best(kept_values, kept_rows, filled, top)
                bar, full = kept_values[filled - 1], filled == top
    filled = keep_best(kept_values, kept_rows, filled, top)
    return kept_values[:filled].copy(), kept_rows[:filled].copy(), filled
