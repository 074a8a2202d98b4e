"""Links, metrics, calibrators and decisions return the kind of array they were given."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.arrays import is_data_frame, is_tensor
from credibly.losses import Loss
from credibly.names import CALIBRATORS

ROWS, LABELS = 60, 6
RNG = np.random.default_rng(0)
SCORES = RNG.normal(-0.5, 1.5, (ROWS, LABELS))
PROBABILITIES = 1 / (1 + np.exp(-SCORES))
TARGETS = (RNG.random((ROWS, LABELS)) < PROBABILITIES).astype(np.int64)
TARGETS[0] = 0
SETS = PROBABILITIES > 0.5
RATES = np.full(LABELS, 0.3)

CONTEXT = {"num_labels": LABELS, "num_rows": ROWS, "average_size": 2.0, "k": 2}
LOSSES = [
    *(cr.losses.from_name(name, **CONTEXT) for name in cr.losses.names()),
    cr.losses.LabelPairs(cr.losses.SPA()),
    cr.losses.Composite(positive=cr.losses.SPA().positive, negative=cr.losses.SPA().negative),
]


class Mine(cr.losses.BinaryLoss):
    """A user's loss, with a link written for tensors."""

    def positive(self, scores):
        return torch.nn.functional.softplus(-scores)

    def negative(self, scores):
        return torch.nn.functional.softplus(scores)

    def log_odds(self, scores):
        return torch.clamp(scores, -50, 50)


LINKED = [loss.eval() for loss in [*LOSSES, Mine()] if loss.has_link]


def assert_same_in_both_kinds(function, *arrays):
    """Compare the result for numpy arrays with that for tensors, in kind and in value."""
    given = [array.copy() for array in arrays]
    plain, tensor = function(*given), function(*(torch.from_numpy(a.copy()) for a in arrays))
    for before, after in zip(arrays, given, strict=True):
        np.testing.assert_array_equal(before, after)
    assert_kinds(plain, tensor)


def assert_kinds(plain, tensor):
    if dataclasses.is_dataclass(plain):
        plain, tensor = vars(plain), vars(tensor)
    if isinstance(plain, dict):
        assert plain.keys() == tensor.keys()
        for name in plain:
            assert_kinds(plain[name], tensor[name])
    elif isinstance(plain, (list, tuple)):
        for one, two in zip(plain, tensor, strict=True):
            assert_kinds(one, two)
    elif isinstance(plain, np.ndarray):
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(plain, tensor.detach().numpy(), rtol=1e-6, atol=1e-9)
    elif isinstance(plain, (float, int, np.generic)):
        np.testing.assert_allclose(float(plain), float(tensor), rtol=1e-6)
    else:
        assert plain == tensor


@pytest.mark.parametrize("loss", LINKED, ids=str)
@pytest.mark.parametrize(
    "method", ["log_odds", "published_log_odds", "probabilities", "ranking_scores"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_link_returns_the_kind_it_was_given(loss: Loss, method, dtype):
    columns = loss.num_outputs(LABELS)
    scores = RNG.normal(size=(ROWS, columns)).astype(dtype)
    assert_same_in_both_kinds(getattr(loss, method), scores)
    assert getattr(loss, method)(scores=scores).dtype == dtype
    assert isinstance(getattr(loss, method)(scores.astype(np.float16)), np.ndarray)


@pytest.mark.parametrize("loss", LINKED, ids=str)
def test_known_log_odds_and_initial_scores_return_the_kind_they_were_given(loss: Loss):
    scores = RNG.normal(size=(ROWS, loss.num_outputs(LABELS)))
    assert_same_in_both_kinds(loss.known_log_odds, scores, TARGETS > 0)
    assert_same_in_both_kinds(loss.initial_scores, RATES)


def test_a_link_takes_read_only_and_strided_arrays():
    scores = SCORES[::2, ::-1]
    scores.setflags(write=False)
    expected = cr.losses.SPA().log_odds(torch.from_numpy(scores.copy()))
    np.testing.assert_array_equal(cr.losses.SPA().log_odds(scores), expected.numpy())


METRICS = [
    name
    for name, value in vars(cr.metrics).items()
    if name in cr.metrics.__all__ and inspect.isfunction(value)
]
ARGUMENTS = {
    "scores": SCORES,
    "probabilities": PROBABILITIES,
    "targets": TARGETS,
    "sets": SETS,
    "truth": 0.9 * PROBABILITIES + 0.05,
    "train_counts": TARGETS.sum(0),
    "successes": TARGETS.sum(0),
    "trials": np.full(LABELS, ROWS),
    "k": 2,
    "top": np.argsort(-SCORES, axis=1),
    "label_counts": TARGETS.sum(0),
    "num_rows": ROWS,
}
OTHER_ARGUMENTS = {
    "interval": (cr.metrics.log_loss, PROBABILITIES, TARGETS),
    "paired_interval": (cr.metrics.log_loss, PROBABILITIES, 0.9 * PROBABILITIES, TARGETS),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_returns_the_kind_it_was_given(name):
    metric = getattr(cr.metrics, name)
    if name == "scorer":
        pytest.skip("takes a name")
    given = OTHER_ARGUMENTS.get(name)
    if given is None:
        parameters = inspect.signature(metric).parameters.values()
        needed = [p.name for p in parameters if p.default is p.empty]
        given = tuple(ARGUMENTS[needed_name] for needed_name in needed)
    constants = {place: value for place, value in enumerate(given) if not np.ndim(value)}
    arrays = [value for value in given if np.ndim(value)]

    def call(*values):
        rest = iter(values)
        return metric(*(constants[i] if i in constants else next(rest) for i in range(len(given))))

    assert_same_in_both_kinds(call, *arrays)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_returns_the_kind_it_was_given(name):
    def mapped(log_odds, targets):
        return cr.calibrate.from_name(name).fit(log_odds, targets).transform(log_odds)

    assert_same_in_both_kinds(mapped, SCORES, TARGETS)


def test_shifted_rates_return_the_kind_they_were_given():
    assert_same_in_both_kinds(cr.calibrate.shift_rates, SCORES, RATES, RATES + 0.1)


DECISIONS = [
    cr.decide.AverageSize(2),
    cr.decide.TopK(2),
    cr.decide.Threshold(0.4),
    cr.decide.Threshold({"a": 0.3, "f": 0.8}, default=0.4, labels="abcdef"),
    cr.decide.Cost(miss=3, false_alarm=1, review=0.2),
    cr.decide.BestF(),
    cr.decide.BestF(min_precision=0.6),
    cr.decide.Recall(0.8),
    cr.decide.Recall(0.7, ("probability", 0.2), per="label"),
    cr.decide.Precision(0.5, ("probability", 0.2)),
    cr.decide.Precision(0.5, None, per="label"),
    cr.decide.Coverage(0.8),
]


@pytest.mark.parametrize("decision", DECISIONS, ids=str)
def test_a_decision_returns_the_kind_it_was_given(decision):
    targets = np.arange(ROWS) % LABELS if decision.name == "coverage" else TARGETS

    def answers(probabilities, targets):
        fitted = decision.fit(probabilities, targets)
        sets = fitted.predict(probabilities), fitted.to_review(probabilities)
        assert all(each.dtype in (np.dtype(bool), torch.bool) for each in sets)
        return sets

    for dtype in (np.float32, np.float64):
        assert_same_in_both_kinds(answers, PROBABILITIES.astype(dtype), targets)


def test_every_decision_is_among_those_tested():
    exported = {getattr(cr.decide, name) for name in cr.decide.__all__ if name != "from_state"}
    assert {type(each) for each in DECISIONS} == exported


def test_expected_costs_return_the_kind_they_were_given():
    assert_same_in_both_kinds(cr.decide.Cost(miss=3, review=0.2).expected, PROBABILITIES)


def test_a_pipeline_returns_the_kind_it_was_given():
    def fitted(scores, targets):
        pipeline = cr.Pipeline("spa", cr.calibrate.Affine(), cr.decide.AverageSize(2))
        pipeline.fit(scores, targets)
        return pipeline.log_odds(scores), pipeline.probabilities(scores), pipeline.sets(scores)

    assert_same_in_both_kinds(fitted, SCORES, TARGETS)


@pytest.mark.parametrize("module", ["pandas", "torch"])
def test_a_module_that_another_thread_is_importing_is_no_trouble(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    assert not is_data_frame([1.0]) if module == "pandas" else not is_tensor([1.0])
