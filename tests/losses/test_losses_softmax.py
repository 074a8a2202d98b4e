"""Softmax for zero, one or many labels."""

from __future__ import annotations

import mpmath as mp
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import credibly as cr
from credibly.losses import Softmax

mp.mp.dps = 50
KINDS = [None, "uniform", "max_confidence", "none_class"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def batch(size=2.0):
    generator = torch.Generator().manual_seed(5)
    scores = size * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    targets = (torch.rand(6, 5, generator=generator) < 0.5).double()
    targets[0], targets[1] = 0, -1
    targets[2, 1:3] = -1
    targets[3] = torch.rand(5, generator=generator, dtype=torch.float64)
    targets[:, 4] = torch.where(targets[:, 4] > 0, 0.0, targets[:, 4])
    return scores.float().double(), targets.float().double()


def by_hand(kind, scores, targets):
    """Mean over the rows that take part, label by label, in 50 digits."""
    terms = []
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        known = [(mp.mpf(v), mp.mpf(y)) for v, y in zip(row, marks, strict=True) if y >= 0]
        extra = [mp.mpf(0)] if kind == "none_class" else []
        if not known:
            continue
        norm = mp.log(mp.fsum(mp.exp(v) for v in [v for v, _ in known] + extra))
        count = mp.fsum(y for _, y in known)
        if count > 0:
            terms.append(-mp.fsum(y / count * (v - norm) for v, y in known))
        elif kind == "uniform":
            size = len(known)
            terms.append(mp.fsum((mp.log(mp.mpf(1) / size) - (v - norm)) / size for v, _ in known))
        elif kind == "max_confidence":
            terms.append(max(v - norm for v, _ in known))
        elif kind == "none_class":
            terms.append(norm)
    return float(mp.fsum(terms) / len(terms))


@each_kind
@pytest.mark.parametrize("size", [0.1, 2.0, 50.0, 1e4])
def test_value_is_that_computed_by_hand(kind, size):
    scores, targets = batch(size)
    expected = by_hand(kind, scores, targets)
    loss = Softmax(kind)
    assert loss(scores, targets).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    single = loss(scores.float(), targets.float()).item()
    assert single == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_one_observed_label_is_the_usual_cross_entropy():
    scores, _ = batch()
    labels = torch.tensor([0, 3, 1, 4, 4, 2])
    scores.requires_grad_()
    value = Softmax()(scores, labels)
    assert value.item() == pytest.approx(cross_entropy(scores, labels).item(), rel=1e-14)
    (grad,) = torch.autograd.grad(value, scores)
    rows = one_hot(labels, 5)
    torch.testing.assert_close(grad, (torch.softmax(scores, 1) - rows).detach() / 6)
    # The paper's print has the derivative of ς_y, which pushes the other way.
    share = torch.softmax(scores, 1).gather(1, labels[:, None])
    printed = share * (rows - torch.softmax(scores, 1))
    assert (printed.sign() == -grad.sign()).all()


def test_none_class_is_a_column_of_zeros():
    scores, targets = batch()
    targets = targets.clamp(min=0)
    wider = torch.cat([scores, torch.zeros(6, 1, dtype=torch.float64)], 1)
    none = (targets.sum(1, keepdim=True) == 0).double()
    expected = Softmax()(wider, torch.cat([targets, none], 1))
    loss = Softmax("none_class")
    assert loss(scores, targets).item() == pytest.approx(expected.item(), rel=1e-14)
    torch.testing.assert_close(loss.probabilities(scores), torch.softmax(wider, 1)[:, :-1])


@each_kind
def test_an_unknown_label_is_as_good_as_none(kind):
    scores, targets = batch()
    targets[:, 3] = -1
    kept = torch.tensor([0, 1, 2, 4])
    narrow = Softmax(kind)(scores[:, kept], targets[:, kept])
    scores[:, 3] = torch.nan
    scores.requires_grad_()
    value = Softmax(kind)(scores, targets)
    assert value.item() == pytest.approx(narrow.item(), rel=1e-14)
    value.backward()
    assert torch.isfinite(scores.grad).all()


@each_kind
def test_nan_stays_in_its_row(kind):
    scores, targets = batch()
    targets[4] = torch.tensor([1.0, 0, 0, 1, 0])
    scores[4, 2] = torch.nan
    scores.requires_grad_()
    values = Softmax(kind).values(scores, targets)
    assert torch.isnan(values).tolist() == [False] * 4 + [True, False]
    (grad,) = torch.autograd.grad(values.sum(), scores)
    assert torch.isfinite(grad[torch.arange(6) != 4]).all()


@pytest.mark.parametrize("size", [1.0, 40.0, 1e4])
def test_log_odds_are_exact_where_probabilities_are_not(size):
    scores = size * torch.tensor([[1.0, 0.5, -1.0, 0.25], [0.0, 0.0, 0.0, 0.0]]).double()
    log_odds = Softmax().log_odds(scores)
    for i, row in enumerate(scores.tolist()):
        for k, v in enumerate(row):
            others = mp.fsum(mp.exp(mp.mpf(u)) for j, u in enumerate(row) if j != k)
            assert log_odds[i, k].item() == pytest.approx(float(v - mp.log(others)), rel=1e-13)


@each_kind
def test_initial_scores_have_the_shares_of_the_labels(kind):
    rates = torch.tensor([0.1, 0.3, 0.2])
    loss = Softmax(kind)
    start = loss.probabilities(loss.initial_scores(rates)[None])[0]
    expected = rates if kind == "none_class" else rates / rates.sum()
    torch.testing.assert_close(start, expected)
    crowded = loss.initial_scores(torch.tensor([0.9, 0.8, 0.7]))
    assert torch.isfinite(crowded).all()


def test_an_unknown_choice_for_rows_without_labels_is_refused():
    with pytest.raises(cr.InputError, match="`zero_label` must be one of"):
        Softmax("zero")
