"""Properties of joint probabilities: a distribution over label sets, honest where labels depend."""

import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from test_retrieve_probability import LABELS, ROWS, formulas
from test_retrieve_queries import value

from credibly import InputError
from credibly.retrieve import Index, Joint, parse, probability, search
from credibly.retrieve.query.formula import query_of


def dependent(rows, seed):
    """Pictures of one thing each, mostly: candidates compete, so labels exclude each other."""
    rng = np.random.default_rng(seed)
    odds = np.exp(rng.normal(-1.5, 2.0, (rows, 4)))
    sets = np.array(list(product([0, 1], repeat=4)))
    weights = (
        np.prod(odds[:, None] ** sets, axis=2) * np.array([0.2, 1, 0.3, 0.1, 0.1])[sets.sum(1)]
    )
    weights /= weights.sum(axis=1, keepdims=True)
    chosen = (weights.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    return (weights @ sets).astype(np.float32), sets[chosen]  # marginals are the true ones


@pytest.fixture(scope="module")
def joint():
    return Joint().fit(*dependent(3000, seed=0), labels=LABELS)


def by_listing(joint, formula, rows):
    odds = dict(zip(joint.labels, joint.odds, strict=True))
    shift = np.array([odds[name] for name in LABELS])
    rows = rows.astype(float)
    chances = rows * shift / (rows * shift + 1 - rows)
    good = everything = 0.0
    for chosen in product([False, True], repeat=4):
        terms = np.where(chosen, chances, np.maximum(0, 1 - chances)).prod(axis=1)
        terms = terms * joint.size_factors[min(sum(chosen), joint.largest)]
        everything = everything + terms
        if value(formula, dict(zip(LABELS, chosen, strict=True))):
            good = good + terms
    return good / everything


@settings(max_examples=100, deadline=None)
@given(formulas)
def test_probability_is_the_share_of_all_label_sets(joint, formula):
    found = joint.probability(query_of(formula), ROWS, LABELS)
    np.testing.assert_allclose(found, by_listing(joint, formula, ROWS), rtol=1e-11, atol=1e-15)
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("largest", [1, 2, 6])
def test_sizes_beyond_the_largest_share_a_factor(largest):
    joint = Joint(largest=largest).fit(*dependent(500, seed=1), labels=LABELS)
    assert len(joint.size_factors) == largest + 1
    query = parse("a | b & !c")
    found = joint.probability(query, ROWS, LABELS)
    expected = by_listing(joint, query.expression, ROWS)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-15)


def precision(scores, relevant):
    from sklearn.metrics import average_precision_score

    return average_precision_score(relevant, scores)


@pytest.mark.parametrize("query", ["+a +b", "+a +b +c", "+a -b -c -d", "a | b", "-a -b -c -d"])
def test_expected_hits_match_real_hits_where_labels_depend(joint, query):
    chances, truth = dependent(20_000, seed=2)
    real = probability(query, truth, LABELS) == 1
    independent, together = (
        probability(query, chances, LABELS, joint=each) for each in (None, joint)
    )
    error = abs(together.sum() - real.sum())
    assert error < 0.05 * real.sum() + 3 * np.sqrt(real.sum())
    assert error < abs(independent.sum() - real.sum())


RANKED = ["+a", "+a +b", "+a -b", "+a +b -c", "+a -b -c -d", "a | b"]


@pytest.mark.parametrize("query", RANKED)
def test_ranking_gets_better_where_each_label_was_judged_alone(query):
    # What a model trained label by label from noisy evidence says: dependence is news to it.
    chances, truth = dependent(23_000, seed=6)
    noise = np.random.default_rng(7).normal(0, 1.5, chances.shape)
    judged = 1 / (1 + np.exp(-(np.log(chances / (1 - chances)) + noise) / 1.5))
    joint = Joint().fit(judged[:3000], truth[:3000], LABELS)
    real = probability(query, truth[3000:], LABELS) == 1
    together, alone = (
        precision(probability(query, judged[3000:], LABELS, joint=each), real)
        for each in (joint, None)
    )
    assert together > alone


@pytest.mark.parametrize("query", RANKED)
def test_ranking_by_exact_probabilities_loses_little(joint, query):
    chances, truth = dependent(20_000, seed=3)
    real = probability(query, truth, LABELS) == 1
    together, alone = (
        precision(probability(query, chances, LABELS, joint=each), real) for each in (joint, None)
    )
    assert together > alone - 0.01


def test_on_the_rows_it_was_fitted_on_the_number_of_labels_is_foreseen():
    chances, truth = dependent(2000, seed=4)
    joint = Joint(ridge=1e-3).fit(chances, truth, LABELS)
    for wanted in (1, 2):
        queries = [q for q in product([0, 1], repeat=4) if sum(q) == wanted]
        texts = [" ".join(f"+{x}" for x, on in zip(LABELS, q, strict=True) if on) for q in queries]
        expected = sum(joint.probability(text, chances, LABELS).sum() for text in texts)
        real = sum((probability(text, truth, LABELS)).sum() for text in texts)
        assert expected == pytest.approx(real, rel=0.01)


def test_unknown_truth_is_summed_over():
    chances, truth = dependent(8000, seed=5)
    hidden = truth.copy()
    hidden[np.random.default_rng(0).random(truth.shape) < 0.2] = -1
    hidden[:50] = -1
    whole, partial = (Joint().fit(chances, y, LABELS) for y in (truth, hidden))
    np.testing.assert_allclose(
        partial.probability("+a +b", ROWS[:20], LABELS),
        whole.probability("+a +b", ROWS[:20], LABELS),
        atol=0.06,
    )
    again = Joint().fit(chances[50:], hidden[50:], LABELS)
    np.testing.assert_allclose(again.size_factors, partial.size_factors, rtol=1e-4)


@pytest.mark.parametrize("query", ["+a -b", "a & b | !c", "(a | b) & (c | d)", "a | !a", "+d"])
def test_arrays_and_sql_give_the_same_bits(joint, query, tmp_path):
    ids = [f"{row:03d}" for row in range(len(ROWS))]
    path = tmp_path / "p.parquet"
    columns = {f"p:{x}": pa.array(c) for x, c in zip(LABELS, ROWS.T.copy(), strict=True)}
    pq.write_table(pa.table({"id": ids, **columns}), path)
    scores = probability(query, ROWS, LABELS, joint=joint)
    order = sorted(range(len(ids)), key=lambda row: (-scores[row], ids[row]))
    for answer in (
        search(path, query, top=100, joint=joint),
        Index.read(path).search(query, top=100, joint=joint),
    ):
        assert answer.ids == [ids[row] for row in order]
        assert answer.probabilities == [scores[row] for row in order]
        assert answer.expected_hits == pytest.approx(scores.sum(), rel=1e-12)


def test_the_order_of_the_labels_does_not_matter(joint):
    chances, truth = dependent(3000, seed=0)
    again = Joint().fit(chances[:, ::-1], truth[:, ::-1], labels=LABELS[::-1])
    assert again.labels == joint.labels
    np.testing.assert_allclose(again.odds, joint.odds)


def test_state_goes_through_a_file(joint, tmp_path):
    joint.write(tmp_path / "joint.json")
    again = Joint.read(tmp_path / "joint.json")
    found = again.probability("a | b & c", ROWS, LABELS)
    assert found.tobytes() == joint.probability("a | b & c", ROWS, LABELS).tobytes()
    assert Joint.from_state(json.loads(json.dumps(joint.state()))).state() == joint.state()


def test_bad_input_is_refused(joint, tmp_path):
    with pytest.raises(InputError, match="must be fitted; call"):
        probability("a", ROWS, LABELS, joint=Joint())
    with pytest.raises(InputError, match="'e' is only in the predictions"):
        probability("a", np.zeros((1, 5)), (*LABELS, "e"), joint=joint)
    with pytest.raises(InputError, match="'d' is only in `joint`"):
        probability("a", ROWS[:, :3], LABELS[:3], joint=joint)
    with pytest.raises(InputError, match="some known truth"):
        Joint().fit(ROWS, np.full(ROWS.shape, -1), LABELS)
    with pytest.raises(InputError, match="must not contain NaN"):
        Joint().fit(np.full((2, 4), np.nan), np.zeros((2, 4)), LABELS)
    with pytest.raises(InputError, match="must name each of the 4 columns once"):
        Joint().fit(ROWS, np.zeros(ROWS.shape), LABELS[:3])
    with pytest.raises(InputError, match="`largest` must be at least 1"):
        Joint(largest=0)
    with pytest.raises(InputError, match=r"must come from `Joint\.state"):
        Joint.from_state({"joint": 1})
    with pytest.raises(InputError, match="of this version"):
        Joint.from_state({**joint.state(), "odds": [float("nan")] * 4})
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match=r"x\.json must be written by"):
        Joint.read(tmp_path / "x.json")
