"""Columns with names are matched by name, rows with ids by id, in every public function."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.special import expit

import credibly as cr
from credibly import InputError, calibrate, decide, metrics
from credibly.names import CALIBRATORS

LABELS = ["cat", "dog", "owl"]
NOISE = np.random.default_rng(0)
SCORES = NOISE.normal(-0.5, [1, 2, 3], (400, 3)) - [0, 1, 2]
TARGETS = (NOISE.random(SCORES.shape) < expit(SCORES)).astype(np.int8)
PROBABILITIES = expit(SCORES)
SHUFFLED = [2, 0, 1]


def of_metric(name):
    return lambda values, targets: np.asarray(getattr(metrics, name)(values, targets))


def fitted(make):
    return lambda values, targets: make().fit(values, targets).state()


PROBABILITY_FUNCTIONS = {
    **{
        name: of_metric(name)
        for name in ("log_loss", "brier", "calibration_error", "average_precision")
    },
    "top_k_f1": lambda values, targets: metrics.top_k_f1(values, targets, k=2),
    "summary": lambda values, targets: metrics.summary(values, targets),
    "sets": lambda values, targets: metrics.summary(values, targets, sets=np.asarray(values) > 0.5),
    "interval": lambda values, targets: metrics.interval(
        metrics.log_loss, values, targets, resamples=3
    ),
    **{kind.__name__: fitted(kind) for kind in (decide.BestF, decide.Recall, decide.Precision)},
    "predictions": lambda values, targets: (
        cr.Predictions.from_arrays(probabilities=values, targets=targets, labels=LABELS).targets
    ),
}
SCORE_FUNCTIONS = {
    **{name: fitted(lambda name=name: calibrate.from_name(name)) for name in CALIBRATORS},
    "auto": lambda values, targets: calibrate.choose(
        {"scores": values}, targets
    ).calibrator.state(),
    "pipeline": lambda values, targets: (
        cr.Pipeline("bce", calibrate.PerLabel(), decide.BestF()).fit(values, targets).state()
    ),
    "auto of a pipeline": lambda values, targets: cr.Pipeline("asl").calibrate(values, targets),
    "calibrate_scores": lambda values, targets: (
        cr.calibrate_scores(values, targets, "bce", method="per-label").stages
    ),
}
FUNCTIONS = [
    *((name, function, PROBABILITIES) for name, function in PROBABILITY_FUNCTIONS.items()),
    *((name, function, SCORES) for name, function in SCORE_FUNCTIONS.items()),
]
each_function = pytest.mark.parametrize(
    ("function", "values"), [entry[1:] for entry in FUNCTIONS], ids=[each[0] for each in FUNCTIONS]
)


class Table:
    """A data frame of another library: names of columns, and an array."""

    def __init__(self, columns):
        self.columns = list(columns)
        self._array = np.stack(list(columns.values()), axis=1)

    def __array__(self, dtype=None, copy=None):
        return self._array.astype(dtype or self._array.dtype)


def frames(array, order):
    """The same columns as tables of three libraries, in another order."""
    columns = {LABELS[place]: array[:, place] for place in order}
    return [pd.DataFrame(columns), pa.table(columns), Table(columns)]


@each_function
def test_columns_are_matched_by_name(function, values):
    expected = function(values, TARGETS)
    for given, truth in zip(frames(values, range(3)), frames(TARGETS, SHUFFLED), strict=True):
        np.testing.assert_equal(function(given, truth), expected)


@each_function
def test_names_on_one_side_go_by_position(function, values):
    np.testing.assert_equal(
        function(values, pd.DataFrame(TARGETS, columns=LABELS)), function(values, TARGETS)
    )


@each_function
def test_other_names_are_refused_and_named(function, values):
    truth = pd.DataFrame(TARGETS, columns=["cat", "cow", "owl"])
    with pytest.raises(InputError, match=r"missing: 'dog'; extra: 'cow'"):
        function(pd.DataFrame(values, columns=LABELS), truth)


@each_function
def test_rows_are_matched_by_id(function, values):
    ids = [f"row {row}" for row in range(len(values))]
    order = NOISE.permutation(len(values))
    given = pd.DataFrame(values, columns=LABELS, index=ids)
    truth = pd.DataFrame(TARGETS, columns=LABELS, index=ids)
    np.testing.assert_equal(function(given, truth.iloc[order]), function(given, truth))


@each_function
def test_other_ids_are_refused(function, values):
    given = pd.DataFrame(values, columns=LABELS, index=np.arange(len(values)) + 5)
    truth = pd.DataFrame(TARGETS, columns=LABELS, index=np.arange(len(values)) + 6)
    with pytest.raises(InputError, match=r"rows .* 5 .*`\.to_numpy\(\)`"):
        function(given, truth)


def test_a_default_index_is_no_id():
    given = pd.DataFrame(PROBABILITIES, columns=LABELS)
    truth = pd.DataFrame(TARGETS, columns=LABELS, index=NOISE.permutation(len(TARGETS)))
    assert metrics.log_loss(given, truth) == metrics.log_loss(PROBABILITIES, TARGETS)


def test_columns_of_a_predictions_file_match_without_their_prefix():
    given = pd.DataFrame(PROBABILITIES, columns=[f"p:{name}" for name in LABELS])
    truth = pd.DataFrame(TARGETS, columns=[f"y:{name}" for name in LABELS])[
        [f"y:{LABELS[place]}" for place in SHUFFLED]
    ]
    assert metrics.log_loss(given, truth) == metrics.log_loss(PROBABILITIES, TARGETS)


def test_names_that_occur_twice_are_refused():
    twice = pd.DataFrame(TARGETS, columns=["cat", "cat", "owl"])
    with pytest.raises(InputError, match="'cat' twice"):
        metrics.log_loss(pd.DataFrame(PROBABILITIES, columns=LABELS), twice)


def test_names_of_frames_become_the_labels():
    given, truth = frames(SCORES, range(3))[0], frames(TARGETS, SHUFFLED)[0]
    assert cr.calibrate_scores(given, truth, "bce").predictions.labels == LABELS
    with pytest.raises(InputError, match=r"missing: 'cow'; extra: 'dog'"):
        cr.calibrate_scores(given, truth, "bce", labels=["cat", "cow", "owl"])


def test_the_wrapper_writes_truth_under_its_own_label_and_scores_it():
    X = pd.DataFrame(SCORES + NOISE.normal(0, 0.1, SCORES.shape))
    y, other = frames(TARGETS, range(3))[0], frames(TARGETS, SHUFFLED)[0]
    model = cr.CalibratedMultiLabel(cv=2, method="affine").fit(X, y)
    np.testing.assert_array_equal(model.to_predictions(X, other).targets, TARGETS)
    score = metrics.scorer("nll")
    assert score(model, X, other) == score(model, X, y)
    with pytest.raises(InputError, match=r"missing: 'dog'; extra: 'cow'"):
        model.to_predictions(X, y.rename(columns={"dog": "cow"}))
