"""Properties of label mixtures: a real distribution over label sets, learnt from held-out truth."""

import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from test_retrieve_probability import LABELS, ROWS, formulas
from test_retrieve_queries import spelt, value

from credibly import InputError
from credibly.retrieve import Index, Joint, fit_joint, parse, probability, search

SETS = np.array(list(product([0, 1], repeat=4)))
INSIDE = np.clip(ROWS, 2.0**-20, 1 - 2.0**-20).astype(np.float32)


def weights_of_sets(parameters, rows):
    """Weight of every set in every row, by the definition."""
    sizes = SETS.sum(1)
    size_factor = np.exp(parameters.slope * sizes) * (1 - parameters.bend * 0.5**sizes)
    size_factor[sizes == 0] = parameters.empty
    factors = np.exp(parameters.slope + parameters.components)
    evidence = (1 + rows[:, None] * (factors - 1)).prod(axis=2) ** (parameters.temper - 1)
    by_component = np.exp(SETS @ parameters.components.T) * parameters.shares
    return size_factor * (evidence @ by_component.T)


def probabilities_of_sets(joint, rows):
    names = [LABELS.index(name) for name in joint.labels]
    rows = rows[:, names].astype(np.float64)
    terms = np.where(SETS, rows[:, None], 1 - rows[:, None]).prod(axis=2)
    terms = terms * weights_of_sets(joint.parameters, rows)
    return terms / terms.sum(axis=1, keepdims=True)


def made(components, seed, bend=0.7, empty=0.05, temper=1.0):
    rng = np.random.default_rng(seed)
    factors, shares = rng.normal(0, 1, (components, 4)), rng.dirichlet(np.ones(components))
    return stored(factors, shares, -0.3, bend, empty, temper)


def stored(factors, shares, slope=0.0, bend=0.0, empty=1.0, temper=1.0):
    """The model with these parameters, as a file holds them."""
    return Joint.from_state(
        {
            **Joint.independent(LABELS).state(),
            "log_factors": factors.tolist(),
            "shares": shares.tolist(),
            "log_slope": slope,
            "bend": bend,
            "empty_factor": empty,
            "temper": temper,
        }
    )


JOINTS = [
    made(1, 0),
    made(1, 1, bend=0.0, empty=1.0),
    made(3, 2, bend=-1.5, empty=4.0),
    made(8, 3, bend=1.9),
    made(3, 4, temper=0.3),
    made(2, 5, bend=0.0, empty=3.0, temper=0.0),
    Joint.independent(LABELS),
]
each_joint = pytest.mark.parametrize("joint", JOINTS, ids=range(len(JOINTS)))


def drawn(joint, rows, seed):
    """Probabilities of labels judged alone, and label sets drawn from the joint distribution."""
    rng = np.random.default_rng(seed)
    chances = (1 / (1 + np.exp(-rng.normal(-0.5, 1.5, (rows, 4))))).astype(np.float32)
    shares = probabilities_of_sets(joint, chances)
    picked = (shares.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(max=15)
    order = [joint.labels.index(name) for name in LABELS]
    return chances, SETS[picked][:, order], shares


@each_joint
@settings(max_examples=40, deadline=None)
@given(formulas)
def test_probability_is_the_share_of_all_label_sets(joint, formula):
    shares = probabilities_of_sets(joint, INSIDE)
    held = [value(formula, dict(zip(joint.labels, each, strict=True))) for each in SETS == 1]
    found = joint.probability(spelt(formula), INSIDE, LABELS)
    np.testing.assert_allclose(found, shares @ np.array(held, float), rtol=1e-9, atol=1e-12)


@each_joint
def test_log_likelihood_sums_over_unknown_labels_and_to_one(joint):
    shares = probabilities_of_sets(joint, INSIDE)
    for truth in product([0, 1, -1], repeat=4):
        agrees = [all(t in (-1, y) for t, y in zip(truth, each, strict=True)) for each in SETS]
        found = joint.log_likelihood(INSIDE, np.tile(truth, (len(INSIDE), 1)), coding="unknown")
        names = [LABELS.index(name) for name in joint.labels]
        rows = INSIDE[:, names]
        found = joint.log_likelihood(rows, np.tile(truth, (len(rows), 1)), coding="unknown")
        np.testing.assert_allclose(np.exp(found), shares @ np.array(agrees, float), rtol=1e-8)


@each_joint
def test_conditional_is_the_ratio_of_probabilities(joint):
    found = joint.conditional("+a -b", INSIDE, LABELS)
    given_both = joint.probability("+a -b +c", INSIDE, LABELS)
    alone = joint.probability("+a -b", INSIDE, LABELS)
    np.testing.assert_allclose(found[:, LABELS.index("c")], given_both / alone, rtol=1e-12)
    assert (found[:, LABELS.index("a")] == 1).all()
    assert (found[:, LABELS.index("b")] == 0).all()


@each_joint
def test_most_probable_set_is_the_best_of_all_with_one_component(joint):
    sets, chances = joint.most_probable(INSIDE, LABELS)
    shares = probabilities_of_sets(joint, INSIDE)
    own = np.exp(joint.log_likelihood(INSIDE, sets.astype(int), LABELS))
    np.testing.assert_allclose(own, chances, rtol=1e-8)
    if len(joint.parameters.shares) == 1:
        np.testing.assert_allclose(chances, shares.max(axis=1), rtol=1e-8)
    else:
        assert (chances <= shares.max(axis=1) * (1 + 1e-9)).all()
        assert (chances >= 0.95 * shares.max(axis=1)).mean() > 0.9


@pytest.mark.parametrize("query", ["+a -b", "-a -b", "a & b | !c", "(a | b) & (c | d)", "a | !a"])
@each_joint
def test_every_engine_gives_the_same_rows(joint, query, tmp_path):
    ids = [f"{row:03d}" for row in range(len(INSIDE))]
    path = tmp_path / "p.parquet"
    columns = {f"p:{x}": pa.array(c) for x, c in zip(LABELS, INSIDE.T.copy(), strict=True)}
    pq.write_table(pa.table({"id": ids, **columns}), path)
    scores = probability(query, INSIDE, LABELS, joint=joint)
    by_id = dict(zip(ids, scores, strict=True))
    index = Index.read(path)
    for answer in (
        search(path, query, top=50, joint=joint),
        index.search(query, top=50, joint=joint),
        index.search(query, top=50, joint=joint),  # with what the first one prepared
    ):
        found = np.array(answer.probabilities)
        np.testing.assert_allclose(found, [by_id[each] for each in answer.ids], rtol=1e-9)
        np.testing.assert_allclose(found, np.sort(scores)[::-1][:50], rtol=1e-9)
        assert answer.expected_hits == pytest.approx(scores.sum(), rel=1e-9)


def test_an_index_follows_the_model_it_is_given():
    index = Index(INSIDE, LABELS)
    first, second = (index.search("+a +b", joint=joint).expected_hits for joint in JOINTS[:2])
    assert first != second
    assert index.search("+a +b", joint=JOINTS[0]).expected_hits == first


PAIRS = np.array([[1.0, 1.0, -1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]])
STRONG = stored(3 * PAIRS, np.array([0.8, 0.2]), empty=0.5, temper=0.2)


@pytest.mark.parametrize("true", [JOINTS[0], STRONG], ids=["size", "pairs"])
def test_no_parameter_of_a_fit_can_be_improved(true):
    """The log-likelihood has no slope at the fit, except for what small penalties allow."""
    chances, truth, _ = drawn(true, 4000, seed=2)
    truth = np.where(np.random.default_rng(1).random(truth.shape) < 0.2, -1, truth)
    fitted = Joint(len(true.parameters.shares), ridge=0.1)
    state = fitted.fit(chances, truth, LABELS, coding="unknown").state()

    def score(changes):
        model = Joint.from_state({**state, **changes})
        return model.log_likelihood(chances, truth, LABELS, coding="unknown").mean()

    moved = {name: state[name] for name in ("log_slope", "empty_factor", "temper", "bend")}
    del moved["bend" if len(state["shares"]) > 1 else "temper"]  # which is not fitted
    for name, at in moved.items():
        slope = (score({name: at + 1e-3}) - score({name: at - 1e-3})) / 2e-3
        assert abs(slope) < 0.004, name
    for place in range(len(state["shares"])):
        ends = []
        for step in (1e-3, -1e-3):
            shares = np.array(state["shares"]) * np.exp(step * np.eye(len(state["shares"]))[place])
            factors = np.array(state["log_factors"])
            factors[place] += step
            ends.append([score({"shares": (shares / shares.sum()).tolist()})])
            ends[-1].append(score({"log_factors": factors.tolist()}))
        slopes = (np.array(ends[0]) - ends[1]) / 2e-3
        assert np.abs(slopes).max() < 0.004, place


def test_divergence_from_the_true_distribution_falls_with_the_number_of_rows():
    true = made(3, seed=4)
    chances, _, shares = drawn(true, 4000, seed=9)
    divergences = []
    for rows in (100, 1000, 10_000):
        held_out, truth, _ = drawn(true, rows, seed=rows)
        model = Joint(3, ridge=0.3).fit(held_out, truth, LABELS)
        guess = probabilities_of_sets(model, chances)
        divergences.append((shares * np.log(shares / guess)).sum(axis=1).mean())
    alone = probabilities_of_sets(Joint.independent(LABELS), chances)
    assert divergences[0] > divergences[1] > divergences[2]
    assert divergences[2] < 0.02 * (shares * np.log(shares / alone)).sum(axis=1).mean()


def test_the_choice_needs_evidence():
    independent = Joint.independent(LABELS)
    assert fit_joint(*drawn(independent, 2000, seed=1)[:2], LABELS).chosen == "independent"
    assert fit_joint(*drawn(JOINTS[0], 30, seed=1)[:2], LABELS).chosen == "independent"
    dependent = fit_joint(*drawn(JOINTS[0], 2000, seed=1)[:2], LABELS)
    assert dependent.chosen != "independent"
    assert dependent.log_scores[dependent.chosen] > dependent.log_scores["independent"]
    together = fit_joint(*drawn(_pairs(), 2000, seed=1)[:2], LABELS)
    assert together.chosen == "mixture-3"
    assert together.rows == 2000


def _pairs():
    """Labels a and b go together, and c and d: no matter of how many labels there are."""
    return stored(2 * PAIRS, np.full(2, 0.5))


def test_labels_never_seen_together_keep_a_probability():
    chances = np.full((500, 4), 0.3, np.float32)
    truth = np.tile(np.eye(4, dtype=int), (125, 1))
    joint = Joint(3).fit(chances, truth, LABELS)
    together = joint.probability("+a +b", chances[:1], LABELS)[0]
    assert 0 < together < 0.01


def test_the_order_of_labels_and_rows_with_nothing_known_do_not_matter():
    chances, truth, _ = drawn(JOINTS[2], 500, seed=3)
    first = Joint(3).fit(chances, truth, LABELS)
    again = Joint(3).fit(
        np.concatenate([chances, chances[:50]])[:, ::-1],
        np.concatenate([truth, np.full((50, 4), -1)])[:, ::-1],
        LABELS[::-1],
    )
    assert first.state() == again.state()


@each_joint
def test_state_goes_through_a_file(joint, tmp_path):
    joint.write(tmp_path / "joint.json")
    again = Joint.read(tmp_path / "joint.json")
    assert isinstance(again, Joint)
    assert again.state() == joint.state()
    query = parse("a | b & c")
    found = again.probability(query, INSIDE, LABELS)
    assert found.tobytes() == joint.probability(query, INSIDE, LABELS).tobytes()


def test_files_of_the_model_with_a_factor_per_size_say_what_to_do(tmp_path):
    state = {"joint": 1, "labels": ["a"], "odds": [1.0], "size_factors": [1.0, 1.0], "ridge": 30.0}
    (tmp_path / "old.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"old\.json .*was removed. Fit the model again"):
        Joint.read(tmp_path / "old.json")


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
def fitted():
    return Joint(1).fit(*dependent(3000, seed=0), labels=LABELS)


def precision(scores, relevant):
    from sklearn.metrics import average_precision_score

    return average_precision_score(relevant, scores)


@pytest.mark.parametrize("query", ["+a +b", "+a +b +c", "+a -b -c -d", "a | b", "-a -b -c -d"])
def test_expected_hits_match_real_hits_where_labels_depend(fitted, query):
    chances, truth = dependent(20_000, seed=2)
    real = probability(query, truth, LABELS) == 1
    independent, together = (
        probability(query, chances, LABELS, joint=each) for each in (None, fitted)
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
    joint = Joint(1).fit(judged[:3000], truth[:3000], LABELS)
    real = probability(query, truth[3000:], LABELS) == 1
    together, alone = (
        precision(probability(query, judged[3000:], LABELS, joint=each), real)
        for each in (joint, None)
    )
    assert together > alone


@pytest.mark.parametrize("query", RANKED)
def test_ranking_by_exact_probabilities_loses_little(fitted, query):
    chances, truth = dependent(20_000, seed=3)
    real = probability(query, truth, LABELS) == 1
    together, alone = (
        precision(probability(query, chances, LABELS, joint=each), real) for each in (fitted, None)
    )
    assert together > alone - 0.01


def test_unknown_truth_is_summed_over():
    chances, truth = dependent(8000, seed=5)
    hidden = truth.copy()
    hidden[np.random.default_rng(0).random(truth.shape) < 0.2] = -1
    hidden[:50] = -1
    whole, partial = (Joint(1).fit(chances, y, LABELS) for y in (truth, hidden))
    np.testing.assert_allclose(
        partial.probability("+a +b", ROWS[:20], LABELS),
        whole.probability("+a +b", ROWS[:20], LABELS),
        atol=0.06,
    )
    again = Joint(1).fit(chances[50:], hidden[50:], LABELS)
    assert again.state() == partial.state()


def test_bad_input_is_refused(tmp_path):
    chances, truth, _ = drawn(JOINTS[0], 10, seed=5)
    with pytest.raises(InputError, match="`components` must be at most the number of rows"):
        Joint(11).fit(chances, truth, LABELS)
    with pytest.raises(InputError, match="some known truth"):
        fit_joint(chances, np.full(truth.shape, -1), LABELS, coding="unknown")
    with pytest.raises(InputError, match="must not contain NaN"):
        Joint().fit(np.full((2, 4), np.nan), np.zeros((2, 4)), LABELS)
    with pytest.raises(InputError, match="must name each of the 4 columns once"):
        Joint().fit(ROWS, np.zeros(ROWS.shape), LABELS[:3])
    with pytest.raises(InputError, match="'d' is only in `joint`"):
        probability("a", ROWS[:, :3], LABELS[:3], joint=JOINTS[0])
    with pytest.raises(InputError, match="must be fitted; call"):
        probability("a", chances, LABELS, joint=Joint())
    with pytest.raises(InputError, match="'e' is only in the predictions"):
        JOINTS[0].probability("a", np.zeros((1, 5)), (*LABELS, "e"))
    for key, bad in [("shares", [2.0]), ("bend", 3.0), ("log_slope", float("nan")), ("labels", [])]:
        with pytest.raises(InputError, match="must come from `state"):
            Joint.from_state({**JOINTS[0].state(), key: bad})
    for text in ("{", "[1]", json.dumps({"joint": 7})):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match=r"x\.json must be .*`credibly joint fit`"):
            Joint.read(tmp_path / "x.json")


def test_the_command_writes_what_search_takes(tmp_path, capsys):
    from credibly import Predictions
    from credibly.cli import main

    chances, truth, _ = drawn(_pairs(), 600, seed=6)
    ids = [str(row) for row in range(600)]
    file, out = str(tmp_path / "held-out.parquet"), str(tmp_path / "joint.json")
    Predictions.from_arrays(
        probabilities=chances, labels=list(LABELS), ids=ids, targets=truth
    ).write(file)
    assert main(["joint", "fit", file, "--out", out, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["chosen"] == "mixture-3"
    arguments = ["search", file, "+a +b", "--joint", "--joint-from", out, "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)["expected_hits"]
    real = (truth[:, [LABELS.index("a"), LABELS.index("b")]] == 1).all(axis=1).sum()
    assert found == pytest.approx(real, rel=0.1)
    bare = str(tmp_path / "bare.parquet")
    Predictions.from_arrays(probabilities=chances, labels=list(LABELS), ids=ids).write(bare)
    assert main(["joint", "fit", bare, "--out", out]) == 2
    assert "is fitted on rows with known truth" in capsys.readouterr().err
