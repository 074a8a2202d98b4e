"""The two-head loss against loops, and its candidates against sorting, ties included."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import credibly as cr
from credibly.losses import AverageK


def batch(rows=6, labels=5, seed=0, size=2.0):
    generator = torch.Generator().manual_seed(seed)
    scores = size * torch.randn(rows, 2 * labels, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, labels, (rows,), generator=generator)


def brute_force_candidates(sccp, observed, known, count):
    """Sort all softmax entries that may be proposed, ties by their place in the batch."""
    entries = []
    for i, row in enumerate(sccp.tolist()):
        if observed[i] is None:
            continue
        inside = [v for j, v in enumerate(row) if known[i][j]]
        norm = math.fsum(math.exp(v - max(inside)) for v in inside)
        for j, v in enumerate(row):
            if known[i][j] and j != observed[i]:
                entries.append((-math.exp(v - max(inside)) / norm, i, j))
    return {(i, j) for _, i, j in sorted(entries)[:count]}


def by_hand(loss, scores, observed, known=None):
    labels = scores.shape[1] // 2
    known = known or [[True] * labels for _ in observed]
    ml, sccp = scores[:, :labels], scores[:, labels:]
    rows = [i for i, y in enumerate(observed) if y is not None]
    chosen = brute_force_candidates(
        sccp, observed, known, round((loss.average_size - 1) * len(rows))
    )
    first, proposed, rejected = [], [], []
    for i in rows:
        inside = [v for j, v in enumerate(sccp[i].tolist()) if known[i][j]]
        first.append(math.log(math.fsum(map(math.exp, inside))) - sccp[i, observed[i]].item())
        for j in range(labels):
            up = math.log1p(math.exp(-ml[i, j].item()))
            down = math.log1p(math.exp(ml[i, j].item()))
            if j == observed[i]:
                first.append(up)
            elif (i, j) in chosen:
                proposed.append(up)
            elif known[i][j]:
                rejected.append(down)
    value = math.fsum(first) / len(rows)
    for part in (proposed, rejected):
        value += loss.alpha * math.fsum(part) / len(part) if part else 0.0
    return value


@pytest.mark.parametrize("size", [1.0, 1.25, 2.0, 3.7, 5.0])
@pytest.mark.parametrize("alpha", [0.3, 2.0])
def test_value_is_that_of_the_loops(size, alpha):
    scores, observed = batch()
    loss = AverageK(size, alpha)
    expected = by_hand(loss, scores, observed.tolist())
    assert loss(scores, observed).item() == pytest.approx(expected, rel=1e-12)


def test_rows_without_a_label_and_unknown_labels_take_no_part():
    scores, observed = batch()
    targets = torch.nn.functional.one_hot(observed, 5).double()
    targets[0], targets[1] = 0, -1
    targets[2, (observed[2] + 1) % 5] = -1
    known = [[y >= 0 for y in row] for row in targets.tolist()]
    labels = [None, None, *observed.tolist()[2:]]
    loss = AverageK(2.5)
    scores[1, 2] = scores[2, (observed[2] + 1) % 5] = torch.nan
    scores.requires_grad_()
    value = loss(scores, targets)
    with torch.no_grad():
        assert value.item() == pytest.approx(by_hand(loss, scores, labels, known), rel=1e-12)
    value.backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[:2].abs().max() == 0


@pytest.mark.parametrize("size", [1.5, 2.0, 3.0])
def test_ties_go_to_the_lowest_place_of_the_batch(size):
    """Equal rows, equal columns: which cells were proposed shows in the sign of the gradient."""
    scores = torch.zeros(4, 8, dtype=torch.float64)
    scores[2:, 4:] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    observed = [0, 3, 0, 1]
    scores.requires_grad_()
    AverageK(size)(scores, torch.tensor(observed)).backward()
    up = {tuple(place) for place in (scores.grad[:, :4] < 0).nonzero().tolist()}
    known = [[True] * 4 for _ in observed]
    with torch.no_grad():
        chosen = brute_force_candidates(scores[:, 4:], observed, known, round((size - 1) * 4))
    assert up == chosen | set(enumerate(observed))


def test_no_gradient_flows_through_the_choice():
    scores, observed = batch()
    scores.requires_grad_()
    AverageK(2)(scores, observed).backward()
    alone = scores.detach()[:, 5:].clone().requires_grad_()
    torch.nn.functional.cross_entropy(alone, observed).backward()
    torch.testing.assert_close(scores.grad[:, 5:], alone.grad)


def test_one_label_on_average_proposes_nothing_and_all_labels_reject_nothing():
    scores, observed = batch()
    for size, wrong_side in ((1, -1), (5, 1)):
        leaf = scores.clone().requires_grad_()
        AverageK(size)(leaf, observed).backward()
        rest = torch.nn.functional.one_hot(observed, 5) == 0
        assert (leaf.grad[:, :5][rest].sign() == -wrong_side).all()


def test_nan_stays_in_its_row():
    scores, observed = batch()
    for column in (0, 7):
        strange = scores.clone()
        strange[3, column] = torch.nan
        strange.requires_grad_()
        values = AverageK(2).values(strange, observed)
        assert torch.isnan(values).tolist() == [False] * 3 + [True] + [False] * 2
        (grad,) = torch.autograd.grad(values.sum(), strange)
        assert torch.isfinite(grad[torch.arange(6) != 3]).all()


def test_heads_have_their_own_links():
    scores, _ = batch()
    torch.testing.assert_close(AverageK(2).probabilities(scores), torch.sigmoid(scores[:, :5]))
    sccp = AverageK(2, head="sccp")
    torch.testing.assert_close(sccp.probabilities(scores), torch.softmax(scores[:, 5:], 1))
    assert sccp.ranking_scores(scores).equal(scores[:, 5:])
    assert AverageK(2).initial_scores(torch.tensor([0.2, 0.3, 0.5])).shape == (6,)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=60),
    copies=st.integers(1, 40),
    count=st.integers(0, 30),
)
def test_selection_is_that_of_a_stable_sort(values, copies, count):
    vector = torch.tensor(values * copies, dtype=torch.float32)
    order = sorted(range(len(vector)), key=lambda k: (-vector[k].item(), k))
    assert proposed(vector, count) == sorted(order[:count])


def proposed(vector, count):
    """Return the labels that a row with these proposals learns; one more label is observed."""
    heads = torch.cat([torch.zeros(len(vector)).to(vector), vector[:1], vector, vector[:1]])
    scores = heads[None].requires_grad_()
    loss = AverageK(1 + min(count, len(vector)))
    loss(scores, torch.tensor([len(vector)])).backward()
    return (scores.grad[0, : len(vector)] < 0).nonzero()[:, 0].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_selection_is_that_of_topk_where_nothing_ties(seed):
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(20_011, generator=generator, dtype=torch.float64)
    for count in (1, 7, 300, 4000):
        expected = set(vector.topk(count).indices.tolist())
        assert set(proposed(vector, count)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"average_size": 0.5}, "`average_size` must"),
        ({"average_size": 2, "alpha": 0}, "`alpha` must be a finite number above 0"),
        ({"average_size": 2, "head": "both"}, "`head` must be one of"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(cr.InputError, match=message):
        AverageK(**arguments)


def test_scores_must_have_two_columns_a_label_and_room_for_the_set():
    with pytest.raises(cr.InputError, match="2 columns per label; got 5"):
        AverageK(2)(torch.zeros(3, 5), torch.tensor([0, 1, 0]))
    with pytest.raises(cr.InputError, match="the number of labels, 3; got 4"):
        AverageK(4)(torch.zeros(3, 6), torch.tensor([0, 1, 0]))
