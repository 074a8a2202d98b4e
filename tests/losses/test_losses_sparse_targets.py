"""Lists of labels give what the matrix they stand for gives, over more than one chunk of labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credibly import losses as cl
from credibly.targets import SparseTargets

ROWS, LABELS, WIDTH = 2100, 300, 3  # more entries than one chunk of labels holds

LOSSES = {
    "bce": cl.BCE(),
    "bce, weights of labels": cl.BCE(label_weight=torch.linspace(0.5, 2, LABELS)),
    "bce, weights of positives": cl.BCE(pos_weight=torch.linspace(0.5, 2, LABELS)),
    "bce, sum": cl.BCE(reduction="sum"),
    "focal": cl.Focal(),
    "asl": cl.Asymmetric(),
    "spa": cl.SPA(),
    "spa, weights of labels": cl.SPA(label_weight=torch.linspace(2, 0.5, LABELS)),
    "two-way": cl.TwoWay(),
    "quasibinary": cl.Quasibinary(),
}


def sparse_targets(kind):
    """Entries of 1, and by kind: written zeros, soft values, unknown entries, unknown rows."""
    rng = np.random.default_rng(3)
    lists = [np.sort(rng.choice(LABELS, rng.integers(0, 4), replace=False)) for _ in range(ROWS)]
    known = np.arange(ROWS) % 5 > 0 if kind in ("unknown rows", "everything") else None
    if known is not None:
        lists = [each if keep else each[:0] for each, keep in zip(lists, known, strict=True)]
    indices = np.concatenate(lists)
    pool = {
        "ones": [1.0],
        "zeros": [1.0, 0.0],
        "soft": [1.0, 0.25],
        "unknown entries": [1.0, -1.0],
        "unknown rows": [1.0],
        "everything": [1.0, 0.0, 0.5, -1.0],
    }[kind]
    values = rng.choice(pool, len(indices)).astype(np.float32)
    return SparseTargets(np.cumsum([0, *map(len, lists)]), indices, LABELS, values, known)


KINDS = ("ones", "zeros", "soft", "unknown entries", "unknown rows", "everything")


@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_of_lists_holds_their_values(kind):
    sparse = sparse_targets(kind)
    expected = np.zeros((ROWS, LABELS), np.float32)
    for row in range(ROWS):
        entries = slice(sparse.offsets[row], sparse.offsets[row + 1])
        expected[row, sparse.indices[entries]] = sparse.entry_values()[entries]
        if sparse.known is not None and not sparse.known[row]:
            expected[row] = -1
    np.testing.assert_array_equal(sparse.dense(), expected)
    assert sparse.num_known == (expected >= 0).sum()
    np.testing.assert_array_equal(sparse.known_counts(), (expected >= 0).sum(axis=0))
    present = np.maximum(expected, 0)
    np.testing.assert_allclose(sparse.label_counts(), present.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(sparse.row_counts(), present.sum(axis=1), rtol=1e-6)
    assert sparse.hard == bool(np.isin(expected, (0, 1)).all() and kind != "zeros")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_sparse_targets_give_what_their_matrix_gives(name, kind):
    loss, sparse = LOSSES[name], sparse_targets(kind)
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
    start = 0.3 * torch.randn(LABELS, WIDTH, generator=generator, dtype=torch.float64)
    found = []
    for give in (
        lambda weight: cl.fused_linear(loss, hidden, weight, None, sparse),
        lambda weight: loss(hidden @ weight.T, torch.from_numpy(sparse.dense()).double()),
    ):
        weight = start.clone().requires_grad_()
        value = give(weight)
        value.backward()
        found.append((value.detach(), weight.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)
