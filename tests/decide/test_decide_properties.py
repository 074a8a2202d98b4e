"""Properties that every decision has, and the decisions without a guarantee."""

import json
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.metrics import fbeta_score

from credibly import InputError, decide
from credibly.decide import AverageSize, BestF, Cost, Coverage, Precision, Recall, Threshold, TopK

LABELS = list("abcdef")
DECISIONS = [
    Threshold(0.3),
    Threshold({"a": 0.7, "d": 0.1}, default=0.3, labels=LABELS),
    Cost(miss=5, false_alarm=2),
    Cost(miss=5, false_alarm=2, review=0.5),
    TopK(2),
    BestF(),
    BestF(beta=2.0),
    BestF(min_precision=0.6),
    Recall(0.8),
    Recall(0.8, guarantee=None),
    Recall(0.8, guarantee=("probability", 0.1)),
    Recall(0.8, per="label"),
    Recall(0.8, guarantee=("probability", 0.1), per="label"),
    Precision(0.4, guarantee=None),
    Precision(0.4, guarantee=("probability", 0.1)),
    Precision(0.4, guarantee=("probability", 0.1), per="label"),
    AverageSize(1.5),
    AverageSize(2, guarantee="expected"),
    AverageSize(2, guarantee=("probability", 0.1)),
    Coverage(0.8),
    Coverage(0.8, method="aps"),
    Coverage(0.8, method="raps", penalty=0.05, free_size=1),
]
each = pytest.mark.parametrize("decision", DECISIONS, ids=repr)


def draw(rows=300, labels=6, seed=0, dtype=np.float32):
    noise = np.random.default_rng(seed)
    return (1 / (1 + np.exp(-noise.normal(-1.5, 2, (rows, labels))))).astype(dtype)


def truth_for(decision, probabilities, seed=1):
    """Rows without labels, rows of unknowns, a label never on; or one label per row."""
    noise = np.random.default_rng(seed)
    if isinstance(decision, Coverage):
        return (probabilities * noise.random(probabilities.shape)).argmax(axis=1)
    targets = (noise.random(probabilities.shape) < probabilities).astype(np.int8)
    targets[:3], targets[3:6], targets[:, 2] = 0, -1, 0
    return targets


def fitted(decision, probabilities):
    return decision.fit(probabilities, truth_for(decision, probabilities))


@each
def test_the_set_of_a_row_depends_on_that_row_alone(decision):
    probabilities = draw()
    fitted(decision, probabilities)
    whole = decision.predict(probabilities)
    order = np.random.default_rng(2).permutation(len(probabilities))
    pieces = [decision.predict(probabilities[[row]]) for row in order]
    assert_array_equal(np.concatenate(pieces), whole[order])
    assert whole.dtype == bool
    assert whole.any()


@each
def test_a_more_probable_label_is_never_left_out_for_a_less_probable_one(decision):
    probabilities = draw(rows=200)
    fitted(decision, probabilities)
    state = decision.state()
    own = isinstance(state.get("threshold"), dict) or len(state.get("thresholds", [0])) > 1
    if own:  # holds down each label: every label has its own threshold
        sets, values = decision.predict(probabilities).T, probabilities.T
    else:
        sets, values = decision.predict(probabilities), probabilities
    lowest_in = np.where(sets, values, np.inf).min(axis=1)
    highest_out = np.where(sets, -np.inf, values).max(axis=1)
    assert (lowest_in >= highest_out).all()


@each
def test_the_state_survives_json_exactly(decision):
    probabilities = draw()
    state = json.loads(json.dumps(fitted(decision, probabilities).state()))
    again = decide.from_state(state)
    assert_array_equal(again.predict(probabilities), decision.predict(probabilities))
    assert again.state() == state
    assert again.statement == decision.statement


@each
def test_torch_in_torch_out(decision):
    probabilities = draw()
    targets = truth_for(decision, probabilities)
    decision.fit(torch.as_tensor(probabilities), torch.as_tensor(targets))
    sets = decision.predict(torch.as_tensor(probabilities))
    assert isinstance(sets, torch.Tensor)
    assert sets.dtype == torch.bool
    assert_array_equal(sets.numpy(), decision.predict(probabilities))


@each
def test_fitting_does_not_depend_on_the_order_of_exchangeable_rows(decision):
    if isinstance(decision, AverageSize) and isinstance(decision.guarantee, tuple):
        return  # its stake comes from the first rows; validity does not depend on which they are
    probabilities = draw()
    targets = truth_for(decision, probabilities)
    order = np.random.default_rng(3).permutation(len(probabilities))
    first = decision.fit(probabilities, targets).state()
    assert decision.fit(probabilities[order], targets[order]).state() == first


@each
def test_inputs_are_not_modified(decision):
    probabilities = draw()
    targets = truth_for(decision, probabilities)
    before = probabilities.copy(), targets.copy()
    decision.fit(probabilities, targets).predict(probabilities)
    assert_array_equal(before[0], probabilities)
    assert_array_equal(before[1], targets)


@each
def test_every_statement_is_in_short_sentences_and_names_its_assumption(decision):
    statement = decision.statement
    assert statement.endswith(".")
    assert max(len(sentence.split()) for sentence in statement.split(". ")) <= 30
    assert any(
        words in statement for words in ("if ", "assumes", "not guaranteed", "without a guarantee")
    )


@each
def test_a_guarantee_says_that_its_rows_must_be_unused(decision):
    promised = "drawn like the fitted ones" in decision.statement
    assert ("not have been used for training or calibration" in decision.assumption) == promised
    assert len(decision.assumption.split()) <= 30


def hard_cases(decision, dtype):
    """Random rows, ties, extremes, and the neighbours of every number the rule compares with."""
    probabilities = draw(rows=60, seed=4, dtype=dtype)
    state = decision.state()
    thresholds = state.get("thresholds", state.get("threshold", 0.5))
    if isinstance(thresholds, dict):
        thresholds = [*thresholds.values(), state["default"]]
    if isinstance(decision, Cost):
        thresholds = decision.bounds
    numbers = np.append(thresholds, 1 - state.get("quantile", 0.5)).clip(0, 1)
    near = np.concatenate([np.nextafter(numbers.astype(dtype), dtype(side)) for side in (0, 1)])
    around = np.concatenate([numbers.astype(dtype), near, dtype([0, 1, 0.5, 0.7])])
    picks = np.random.default_rng(5).integers(0, len(around), (400, probabilities.shape[1]))
    constant = np.repeat(around[:, None], probabilities.shape[1], axis=1)
    return np.concatenate([probabilities, np.round(probabilities, 1), around[picks], constant])


FITTED_ON = {"plain": lambda values: values, "ties": lambda values: np.round(values, 1)}


@each
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fit_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", FITTED_ON)
def test_the_module_gives_exactly_the_sets_of_predict(decision, dtype, fit_dtype, kind):
    fitted(decision, FITTED_ON[kind](draw(dtype=fit_dtype)))
    probabilities = hard_cases(decision, dtype)
    expected = decision.predict(probabilities)
    module = decision.to_module()
    for rule in (module, module.half()):
        sets = rule(torch.from_numpy(probabilities))
        assert sets.dtype == torch.bool
        assert_array_equal(sets.numpy(), expected)
    assert not list(module.parameters())
    assert not list(module.buffers())


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_onnxruntime_gives_exactly_the_sets_of_predict(decision, dtype, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    fitted(decision, np.round(draw(), 1))
    probabilities = hard_cases(decision, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            decision.to_module(),
            (torch.from_numpy(probabilities[:2]),),
            str(tmp_path / "rule.onnx"),
            input_names=["probabilities"],
            dynamic_axes={"probabilities": {0: "rows"}},
            opset_version=17,
            dynamo=False,
        )
    session = onnxruntime.InferenceSession(
        tmp_path / "rule.onnx", providers=["CPUExecutionProvider"]
    )
    (sets,) = session.run(None, {"probabilities": probabilities})
    assert_array_equal(sets, decision.predict(probabilities))


@pytest.mark.parametrize("kind", [BestF, lambda: AverageSize(2), Coverage, Recall, Precision])
def test_exporting_before_fitting_says_so(kind):
    with pytest.raises(InputError, match="must be fitted first"):
        kind().to_module()


@each
@pytest.mark.parametrize("bad", [-0.1, 1.5, np.nan])
def test_what_is_not_a_probability_is_refused(decision, bad):
    probabilities = draw()
    fitted(decision, probabilities)
    probabilities[7, 1] = bad
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]|must not contain NaN"):
        decision.predict(probabilities)
    if decision.fitted_on != "nothing":
        with pytest.raises(InputError, match=r"must lie in \[0, 1\]|must not contain NaN"):
            fitted(decision, probabilities)


@pytest.mark.parametrize("kind", [BestF, lambda: AverageSize(2), Coverage, Recall, Precision])
def test_predicting_before_fitting_says_so(kind):
    with pytest.raises(InputError, match="must be fitted first"):
        kind().predict(draw(2))


@pytest.mark.parametrize("kind", [BestF, Coverage, Recall, Precision])
def test_rules_that_need_truth_say_so(kind):
    with pytest.raises(InputError, match="needs `targets`"):
        kind().fit(draw())


def test_top_k_takes_the_first_of_equals():
    sets = TopK(2).predict(np.array([[0.5, 0.5, 0.5], [0.1, 0.2, 0.2], [0.0, 1.0, 0.0]]))
    assert_array_equal(sets, [[True, True, False], [False, True, True], [True, True, False]])


def test_top_k_sets_have_k_labels():
    probabilities = np.round(draw(), 1)
    for k in range(1, 7):
        assert (TopK(k).predict(probabilities).sum(axis=1) == k).all()


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("digits", [1, 6])
def test_best_f_is_the_best_of_all_thresholds(beta, digits):
    probabilities = np.round(draw(rows=40), digits)
    targets = truth_for(None, probabilities)
    sets = BestF(beta).fit(probabilities, targets).predict(probabilities)
    for label in [0, 1, 3, 4, 5]:
        known = targets[:, label] >= 0
        y, p = targets[known, label], probabilities[known, label]
        cuts = np.unique(p)
        best = max(fbeta_score(y, p >= cut, beta=beta, zero_division=0.0) for cut in cuts)
        found = fbeta_score(y, sets[known, label], beta=beta)
        assert found == pytest.approx(best, abs=1e-12)


def test_best_f_gives_labels_without_positives_the_pooled_threshold():
    probabilities = draw()
    targets = truth_for(None, probabilities)
    found = BestF().fit(probabilities, targets).thresholds[2]
    known = targets >= 0
    column = BestF().fit(probabilities[known][:, None], targets[known][:, None])
    assert found == column.thresholds[0]


def test_best_f_without_any_positive_says_so():
    with pytest.raises(InputError, match="at least one known positive"):
        BestF().fit(draw(), np.zeros((300, 6)))


def test_settings_are_checked():
    with pytest.raises(InputError, match="`k` must be a whole number"):
        TopK(0)
    with pytest.raises(InputError, match="at most the number of labels, 6; got 7"):
        TopK(7).predict(draw())
    with pytest.raises(InputError, match=r"`threshold` must lie in \[0, 1\]"):
        Threshold(1.2)
    with pytest.raises(InputError, match=r"`level` must lie in \(0, 1\)"):
        Coverage(1.0)
    with pytest.raises(InputError, match="must be None"):
        AverageSize(2, guarantee="always")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"`delta` must lie in \(0, 1\)"):
        AverageSize(2, guarantee=("probability", 0.0))
    with pytest.raises(InputError, match="at most the number of labels, 6; got 7"):
        AverageSize(7).fit(draw())
    with pytest.raises(InputError, match="must have 6 columns"):
        fitted(BestF(), draw()).predict(draw(labels=5))


def test_states_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="Did you mean 'top-k'"):
        decide.from_state({"decision": "topk"})
    with pytest.raises(InputError, match="with the key 'decision'"):
        decide.from_state({"k": 1})
    with pytest.raises(InputError, match="must hold threshold"):
        decide.from_state({"decision": "threshold"})
