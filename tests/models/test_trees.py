"""Properties of forests and boosting kept as arrays."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from credibly.models.network import Stack
from credibly.models.trees import Booster, TreesModule, grow_forest

pytest.importorskip("lightgbm")
ROWS, COLUMNS = 120, 5


def table(seed: int = 0, missing: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 rows and three labels: two that follow the rows, one that is never there."""
    noise = np.random.default_rng(seed)
    rows = noise.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    targets = np.zeros((ROWS, 3))
    targets[:, 0] = rows[:, 0] + 0.3 * noise.normal(size=ROWS) > 0
    targets[:, 1] = rows[:, 1] * rows[:, 2] > 0.3
    if missing:
        rows[noise.random(rows.shape) < 0.2] = np.nan
    return rows, targets


def scores(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    return model(torch.from_numpy(rows).double()).numpy()


FORESTS = {"both": (12, 1), "large leaves": (12, 5), "odd": (7, 1)}
"""Number of trees, and minimum number of rows per leaf."""


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("name", FORESTS)
def test_walk_of_a_forest_gives_the_votes_of_scikit_learn(name, missing):
    rows, targets = table(missing=missing)
    trees, leaf = FORESTS[name]
    model, _ = grow_forest(rows, targets, 3, trees=trees, leaf=leaf)
    new, theirs = table(1, missing)[0], []
    counts = {ExtraTreesRegressor: trees - trees // 2, RandomForestRegressor: trees // 2}
    for place, (kind, count) in enumerate(counts.items()):
        grown: Any = kind(count, bootstrap=True, random_state=3 + place)
        grown.set_params(min_samples_leaf=leaf, max_features="sqrt" if place else 0.3)
        theirs.append(count * grown.fit(rows, targets).predict(new))
    votes = model.sums(torch.from_numpy(new).double()).numpy()
    np.testing.assert_allclose(votes, sum(theirs) / trees, rtol=0, atol=1e-12)


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_walk_of_boosting_gives_the_scores_of_lightgbm(missing, threads):
    rows, targets = table(missing=missing)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        booster = Booster(rows, targets, 3, 8)
    finally:
        torch.set_num_threads(before)
    one = Booster(rows, targets, 3, 8).model(8)
    model, new = booster.model(8), table(1, missing=True)[0]
    assert all(map(torch.equal, model.state_dict().values(), one.state_dict().values()))
    ours = scores(model, new)
    assert [own for own, _ in booster.boosters] == [[0], [1]]
    for (label,), theirs in booster.boosters:
        expected = booster.base[label] + theirs.predict(new, raw_score=True)
        np.testing.assert_allclose(ours[:, label], expected, rtol=0, atol=1e-12)
    staged = booster.staged(new, (3, 8))
    np.testing.assert_allclose(staged[0], scores(booster.model(3), new), rtol=0, atol=1e-12)
    np.testing.assert_allclose(staged[1], ours, rtol=0, atol=1e-12)
    assert (staged[0] != staged[1]).any()


def test_boosting_learns_the_log_odds_of_soft_and_hard_targets():
    """On one column of two values the optimum is known: the share of each value."""
    rows = np.repeat([[0.0], [1.0]], 500, axis=0).astype(np.float32)
    hard = np.r_[np.arange(500) < 100, np.arange(500) < 450].astype(float)[:, None]
    soft = np.r_[np.full(500, 0.2), np.full(500, 0.9)][:, None]
    for targets in (hard, soft):
        found = scores(Booster(rows, targets, 0, 200).model(200), rows[::500])
        # The penalty draws the scores of 500 rows a little to the rate of all.
        np.testing.assert_allclose(1 / (1 + np.exp(-found[:, 0])), [0.2, 0.9], atol=3e-3)


def test_boosting_of_classes_learns_their_shares():
    rows, _ = table()
    classes = np.digitize(rows[:, 0], [-0.5, 0.5])
    booster = Booster(rows, np.eye(4)[classes], 0, 60, exclusive=True)
    new = table(1)[0]
    ours = booster.model(60)(torch.from_numpy(new).double()).softmax(dim=1).numpy()
    assert (ours[:, 3] < 0.02).all()  # a class without rows
    assert (ours.argmax(axis=1) == np.digitize(new[:, 0], [-0.5, 0.5])).mean() > 0.85
    ((own, theirs),) = booster.boosters
    assert own == [0, 1, 2]
    expected = booster.base[own] + theirs.predict(new, raw_score=True)
    staged = booster.staged(new, (60,))[0]
    np.testing.assert_allclose(staged[:, own], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(staged, scores(booster.model(60), new), rtol=0, atol=1e-12)


def test_out_of_bag_scores_come_from_trees_that_did_not_see_the_row():
    rows, targets = table()
    noise = np.random.default_rng(5).integers(0, 2, targets.shape).astype(float)
    model, out_of_bag = grow_forest(rows, noise, 0, trees=100)
    inside, outside = scores(model, rows), out_of_bag
    assert ((inside > 0) == noise).mean() > 0.95  # learnt by heart
    assert ((outside > 0) == noise).mean() < 0.65


GROW = {
    "forest": lambda rows, targets: grow_forest(rows, targets, 0, trees=10)[0],
    "boosting": lambda rows, targets: Booster(rows, targets, 0, 10).model(10),
}
each_kind = pytest.mark.parametrize("kind", GROW)


@each_kind
def test_unknown_and_soft_targets_train_and_a_constant_label_keeps_its_rate(kind):
    rows, targets = table()
    targets[::3, 0] = -1
    targets[1::3, 1] = 0.7
    targets[:, 2] = 1
    found = scores(GROW[kind](rows, targets), rows)
    assert np.isfinite(found).all()
    assert (found[:, 2] > 3).all()
    known = targets[:, 0] >= 0
    assert ((found[known, 0] > 0) == targets[known, 0]).mean() > 0.8
    nothing = scores(GROW[kind](rows, np.full(targets.shape, -1.0)), rows)
    np.testing.assert_allclose(nothing, 0, atol=1e-9)


@each_kind
def test_unknown_entries_have_no_influence_on_the_values(kind):
    rows, targets = table()
    targets[:40, 0] = -1
    twice = [scores(GROW[kind](rows, targets), rows) for _ in range(2)]
    assert np.array_equal(twice[0], twice[1])
    if kind == "boosting":  # each label has rows of its own
        alone = scores(GROW[kind](rows[40:], targets[40:]), rows)
        np.testing.assert_allclose(twice[0][:, 0], alone[:, 0], atol=1e-12)


@each_kind
def test_stored_trees_give_the_same_scores(kind):
    rows, targets = table()
    grown = GROW[kind](rows, targets)
    stack = Stack([grown, grown], [0.25, 0.5])
    empty = Stack([TreesModule(kind, COLUMNS, 3), TreesModule(kind, COLUMNS, 3)])
    empty.load_state_dict(stack.state_dict())
    assert np.array_equal(scores(empty, rows), scores(stack, rows))


@each_kind
@pytest.mark.parametrize("damage", ["left", "feature", "roots", "values", "backwards"])
def test_damaged_trees_are_refused(kind, damage):
    rows, targets = table()
    state = GROW[kind](rows, targets).state_dict()
    state = {name: tensor.clone() for name, tensor in state.items()}
    if damage == "values":
        state["values"] = state["values"][:-1]
    elif damage == "backwards":
        state["left"][1] = 0
    else:
        state[damage][0] = 10**6
    with pytest.raises(RuntimeError, match="do not match"):
        TreesModule(kind, COLUMNS, 3).load_state_dict(state)


@each_kind
def test_inputs_of_another_width_are_refused(kind):
    with pytest.raises(ValueError, match="takes inputs of shape"):
        TreesModule(kind, COLUMNS, 3)(torch.zeros(2, COLUMNS + 1))
