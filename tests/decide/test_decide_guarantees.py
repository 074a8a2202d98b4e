"""Recall and precision of label sets, by simulation; thresholds by name; costs."""

import itertools
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit
from scipy.stats import binom

from credibly import InputError, decide
from credibly.decide import AverageSize, BestF, Cost, Precision, Recall, Threshold

LABELS, TRIALS = 5, 100


def draw(rows, seed, *, zero_labels=True, sharpen=1.0):
    """Probabilities (too sharp by ``sharpen``) and truth; some rows have no label."""
    noise = np.random.default_rng(seed)
    log_odds = noise.normal(-1.5, 2, (rows, LABELS)) + noise.normal(0, 0.7, (rows, 1))
    truth = noise.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    probabilities = 1 / (1 + np.exp(-sharpen * log_odds))
    kept = truth.any(axis=1) | zero_labels
    return probabilities[kept], truth[kept].astype(np.int8)


POPULATION = draw(20_000, 10**6, sharpen=3.0)


def recall_per_row(sets, truth):
    rows = truth.any(axis=1)
    return ((sets & (truth == 1)).sum(axis=1)[rows] / truth.sum(axis=1)[rows]).mean()


def precision_per_row(sets, truth):
    rows = sets.any(axis=1)
    if not rows.any():
        return 1.0
    return ((sets & (truth == 1)).sum(axis=1)[rows] / sets.sum(axis=1)[rows]).mean()


def small_sets(sets, truth):
    """The average size, negative, so that more is better as in the others."""
    return -sets.sum(axis=1).mean()


def recall_per_label(sets, truth):
    return (sets & (truth == 1)).sum(axis=0) / truth.sum(axis=0)


def precision_per_label(sets, truth):
    chosen = sets.sum(axis=0)
    return np.where(chosen, (sets & (truth == 1)).sum(axis=0) / np.maximum(chosen, 1), 1.0)


def numbers(decision, measure, rows, *, zero_labels=True, prepare=lambda array: array):
    probabilities, truth = POPULATION
    new = prepare(probabilities)
    found = []
    for seed in range(TRIALS):
        fitted, known = draw(rows, seed, zero_labels=zero_labels, sharpen=3.0)
        decision.fit(prepare(fitted).astype(np.float64), known)
        found.append(measure(decision.predict(new), truth))
    return np.array(found)


def steps(probabilities):
    """Eight different probabilities, rounded to float32 as a file or a network rounds them."""
    return (expit(np.rint(1.5 * logit(probabilities).clip(-6, 4)) / 2.1)).astype(np.float32)


@pytest.mark.parametrize(
    ("decision", "measure", "delta"),
    [
        (Recall(0.9), recall_per_row, None),
        (Recall(0.9, ("probability", 0.2)), recall_per_row, 0.2),
        (Recall(0.9, ("probability", 0.2), per="label"), recall_per_label, 0.2),
        (Precision(0.7, ("probability", 0.2)), precision_per_row, 0.2),
        (Precision(0.7, ("probability", 0.2), per="label"), precision_per_label, 0.2),
        (AverageSize(1.3, "expected"), small_sets, None),
        (AverageSize(1.3, ("probability", 0.2)), small_sets, 0.2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_guarantees_hold_with_ties_in_another_arithmetic(decision, measure, delta):
    found = numbers(decision, measure, 300, prepare=steps)
    level = getattr(decision, "level", -1.3)
    if delta is None:
        assert found.mean() >= level - 3 * found.std() / TRIALS**0.5 - 0.001
    else:
        assert ((found < level).sum(axis=0) <= binom.ppf(0.999, TRIALS, delta)).all()


@pytest.mark.parametrize("zero_labels", [True, False])
@pytest.mark.parametrize("rows", [60, 300])
def test_recall_holds_in_expectation(rows, zero_labels):
    found = numbers(Recall(0.9), recall_per_row, rows, zero_labels=zero_labels)
    assert found.mean() >= 0.9 - 3 * found.std() / TRIALS**0.5 - 0.001


@pytest.mark.parametrize("zero_labels", [True, False])
@pytest.mark.parametrize("rows", [100, 400])
def test_recall_holds_with_probability(rows, zero_labels):
    decision = Recall(0.9, guarantee=("probability", 0.2))
    found = numbers(decision, recall_per_row, rows, zero_labels=zero_labels)
    assert (found < 0.9).sum() <= binom.ppf(0.999, TRIALS, 0.2)
    assert found.mean() < 0.97  # and not by selecting everything


def test_recall_of_every_label_holds_with_probability():
    found = numbers(Recall(0.9, ("probability", 0.2), per="label"), recall_per_label, 400)
    assert ((found < 0.9).sum(axis=0) <= binom.ppf(0.999, TRIALS, 0.2)).all()
    assert ((found < 0.9).mean(axis=0) > 0.05).all()  # the binomial tail is exact: not wasteful


@pytest.mark.parametrize(
    ("per", "measure"), [("row", precision_per_row), ("label", precision_per_label)]
)
def test_precision_holds_with_probability(per, measure):
    found = numbers(Precision(0.7, ("probability", 0.2), per=per), measure, 500)
    assert ((found < 0.7).sum(axis=0) <= binom.ppf(0.999, TRIALS, 0.2)).all()
    assert (found.mean(axis=0) < 0.95).all()


def test_rows_without_labels_change_nothing_in_a_recall():
    probabilities, truth = draw(400, 0)
    some = truth.any(axis=1)
    assert not some.all()
    for guarantee, per in itertools.product(
        (None, "expected", ("probability", 0.1)), ("row", "label")
    ):
        whole = Recall(0.9, guarantee, per=per).fit(probabilities, truth).state()
        assert (
            Recall(0.9, guarantee, per=per).fit(probabilities[some], truth[some]).state() == whole
        )


def test_recall_is_the_highest_threshold_that_conformal_risk_control_allows():
    probabilities, truth = draw(50, 1)
    rows = truth.any(axis=1)
    found = Recall(0.8).fit(probabilities, truth).predict(probabilities)

    def allowed(threshold):
        missed = ((probabilities < threshold) & (truth == 1)).sum(axis=1)[rows]
        return (missed / truth.sum(axis=1)[rows]).sum() + 1 <= 0.2 * (rows.sum() + 1)

    best = max(value for value in np.unique(probabilities[truth == 1]) if allowed(value))
    assert_array_equal(found, probabilities >= best)


def test_larger_levels_and_stronger_guarantees_give_larger_sets():
    probabilities, truth = draw(500, 2)
    sizes = [
        Recall(level, guarantee).fit(probabilities, truth).predict(probabilities).sum()
        for level in (0.5, 0.8, 0.95)
        for guarantee in (None, "expected", ("probability", 0.2), ("probability", 0.01))
    ]
    assert sizes == sorted(sizes)


def test_unknown_entries_do_not_count():
    probabilities, truth = draw(500, 3)
    hidden = truth.copy()
    hidden[np.random.default_rng(0).random(truth.shape) < 0.2] = -1
    for decision in (Recall(0.8, per="label"), Precision(0.6, per="label")):
        for label in range(LABELS):
            known = hidden[:, label] >= 0
            alone = type(decision)(decision.level, decision.guarantee, per="label")
            alone.fit(probabilities[known][:, [label]], hidden[known][:, [label]])
            decision.fit(probabilities, hidden)
            assert decision.thresholds[label] == alone.thresholds[0]


def test_labels_that_nothing_can_be_guaranteed_of_are_named():
    probabilities, truth = draw(300, 4)
    truth[:, 1] = 0
    recall = Recall(0.9, per="label").fit(probabilities, truth)
    assert_array_equal(recall.always_selected, [1])
    assert recall.predict(probabilities)[:, 1].all()
    precision = Precision(0.6, per="label").fit(probabilities, truth)
    assert 1 in precision.never_selected
    assert not precision.predict(probabilities)[:, 1].any()
    best = BestF(min_precision=0.6).fit(probabilities, truth)
    assert_array_equal(best.never_selected, [1])


@pytest.mark.parametrize("min_precision", [0.5, 0.8])
def test_best_f_with_a_least_precision_is_the_best_of_the_thresholds_that_have_it(min_precision):
    probabilities, truth = draw(80, 5)
    probabilities = probabilities.round(2)
    sets = BestF(min_precision=min_precision).fit(probabilities, truth).predict(probabilities)
    for label in range(LABELS):
        p, y = probabilities[:, label], truth[:, label] == 1
        scores = {}
        for cut in np.unique(p):
            chosen = p >= cut
            if y[chosen].mean() >= min_precision:
                scores[cut] = 2 * (chosen & y).sum() / (chosen.sum() + y.sum())
        mine = sets[:, label]
        if not scores:
            assert not mine.any()
            continue
        assert_allclose(2 * (mine & y).sum() / (mine.sum() + y.sum()), max(scores.values()))
        assert y[mine].mean() >= min_precision


@pytest.mark.parametrize("review", [None, 0.1, 0.5, 3.0])
@pytest.mark.parametrize(("miss", "false_alarm"), [(5, 1), (1, 1), (0.2, 3)])
def test_costs_are_the_least_that_any_action_has(miss, false_alarm, review):
    decision = Cost(miss=miss, false_alarm=false_alarm, review=review)
    p = np.linspace(0, 1, 1001)[None]
    accept, look = decision.predict(p), decision.to_review(p)
    assert not (accept & look).any()
    costs = np.stack([(1 - p) * false_alarm, p * miss, np.full_like(p, review or np.inf)])
    chosen = np.where(accept, costs[0], np.where(look, costs[2], costs[1]))
    assert_allclose(chosen, costs.min(axis=0), atol=1e-12)
    assert_allclose(decision.expected(p), costs.min(axis=0).sum(axis=1))
    assert look.any() == (review in (0.1, 0.5) and decision.bounds[0] < decision.bounds[1])


def test_thresholds_by_name():
    rule = Threshold({"cat": 0.3}, default=0.6)
    p = np.array([[0.4, 0.4, 0.6]], dtype=np.float32)
    with pytest.raises(InputError, match=r"call `.for_labels\(labels\)` first"):
        rule.predict(p)
    named = rule.for_labels(["dog", "cat", "cow"])
    assert_array_equal(named.predict(p), [[False, True, True]])
    assert_array_equal(
        decide.from_state(json.loads(json.dumps(named.state()))).predict(p), named.predict(p)
    )
    with pytest.raises(InputError, match=r"no label 'cat' to threshold. Did you mean 'cats'"):
        rule.for_labels(["dog", "cats", "cow"])
    with pytest.raises(InputError, match="must have 3 columns"):
        named.predict(p[:, :2])
    with pytest.raises(InputError, match=r"`threshold of 'cat'` must lie in \[0, 1\]; got 3"):
        Threshold({"cat": 3})


def test_states_of_earlier_versions_are_read():
    assert decide.from_state({"decision": "threshold", "threshold": 0.3}).state()["default"] == 0.5
    old = {"decision": "best-f", "beta": 1.0, "thresholds": [0.2, 0.25]}
    assert decide.from_state(old).state()["min_precision"] is None


def test_too_few_rows_and_other_mistakes_are_explained():
    probabilities, truth = draw(400, 6)
    some = np.flatnonzero(truth.any(axis=1))[:8]
    with pytest.raises(
        InputError, match="needs at least 9 held-out rows with a known label; got 8"
    ):
        Recall(0.9).fit(probabilities[some], truth[some])
    with pytest.raises(InputError, match=r"needs at least [0-9]+ held-out rows with a known label"):
        Recall(0.9, ("probability", 0.1)).fit(probabilities[some], truth[some])
    with pytest.raises(InputError, match="its expectation cannot be controlled"):
        Precision(0.9, "expected")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`per` must be one of 'row', 'label'; got 'rows'"):
        Recall(0.9, per="rows")  # type: ignore[arg-type]
    soft = truth * 0.5
    with pytest.raises(InputError, match=r"needs targets of 0, 1 or unknown; got 0.5"):
        Recall(0.9, per="label").fit(probabilities, soft)
    with pytest.raises(InputError, match="`miss` must be a finite number above 0"):
        Cost(miss=0)


def test_a_recall_that_needs_so_many_rows_works_with_so_many():
    probabilities, truth = draw(400, 7)
    some = np.flatnonzero(truth.any(axis=1))
    for level, delta in ((0.9, 0.1), (0.8, 0.05), (0.5, 0.01)):
        decision = Recall(level, ("probability", delta))
        with pytest.raises(InputError) as error:
            decision.fit(probabilities[some[:1]], truth[some[:1]])
        needed = int(str(error.value).split("at least ")[1].split()[0])
        decision.fit(probabilities[some[:needed]], truth[some[:needed]])
        with pytest.raises(InputError, match="needs at least"):
            decision.fit(probabilities[some[: needed - 1]], truth[some[: needed - 1]])
