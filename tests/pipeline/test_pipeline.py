"""From scores to label sets: one object agrees with its parts, with torch and with its file."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.special import expit

import credibly as cr
from credibly import InputError, calibrate, decide, losses
from credibly.names import CALIBRATORS

LOSSES = ["bce", "asl", "spa", "focal", "softmax", "quasibinary", "twl", "avgk", "spa+lpr"]
CALIBRATORS = [None, *CALIBRATORS]
DECISIONS = [
    None,
    decide.Threshold(0.3),
    decide.AverageSize(1.7),
    decide.BestF(),
    decide.AverageSize(4),
]
LABELS = 4
CONTEXT = {"num_labels": LABELS, "average_size": 2.0}

NOISE = np.random.default_rng(0)
TRUE = NOISE.normal(-0.5, 2.0, (300, LABELS))
TARGETS = (NOISE.random(TRUE.shape) < expit(TRUE)).astype(np.int8)
TARGETS[:5] = 0
TARGETS[5:9] = -1


def scores_of(loss: losses.Loss) -> np.ndarray:
    return np.tile(TRUE, (1, loss.scores_per_label)).astype(np.float32)


def fitted(
    loss: str, calibrator: str | None, decision: decide.Decision | None, link: str = "own"
) -> cr.Pipeline:
    kept = None if calibrator is None else calibrate.from_name(calibrator)
    pipeline = cr.Pipeline(loss, kept, decision, context=CONTEXT, link=link)
    return pipeline.fit(scores_of(pipeline.loss), TARGETS)


def usable(loss: str, calibrator: str | None) -> bool:
    return calibrator is not None or losses.from_name(loss, num_rows=1, **CONTEXT).has_link


CASES = [
    (a, b, DECISIONS[i % len(DECISIONS)])
    for i, (a, b) in enumerate((a, b) for a in LOSSES for b in CALIBRATORS if usable(a, b))
]
each_case = pytest.mark.parametrize(("loss", "calibrator", "decision"), CASES, ids=str)


@pytest.mark.parametrize("link", ["plateau", "raw"])
@each_case
def test_a_pipeline_is_its_parts_in_order(loss, calibrator, decision, link):
    pipeline = fitted(loss, calibrator, decision, link)
    scores = scores_of(pipeline.loss)
    criterion = pipeline.loss
    raw = torch.from_numpy(scores)
    with torch.no_grad():
        linked = criterion.has_link and link != "raw"
        mapped = criterion.log_odds if linked else criterion.ranking_scores
        odds = mapped(raw.double()).numpy()
    if calibrator is not None:
        odds = pipeline.calibrator.transform(odds)
    np.testing.assert_allclose(pipeline.log_odds(scores), odds, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pipeline.probabilities(scores), expit(odds), rtol=1e-10)
    rule = decision or decide.Threshold(0.5)
    np.testing.assert_array_equal(pipeline.sets(scores), rule.predict(expit(odds)))


@pytest.mark.parametrize("link", ["own", "raw"])
@each_case
def test_the_torch_module_agrees(loss, calibrator, decision, link):
    pipeline = fitted(loss, calibrator, decision, link)
    scores = scores_of(pipeline.loss)
    ranking, probabilities, sets = pipeline.to_module()(torch.from_numpy(scores))
    np.testing.assert_array_equal(ranking.numpy(), pipeline.ranking_scores(scores))
    expected = pipeline.probabilities(scores)
    np.testing.assert_allclose(probabilities.detach().numpy(), expected, atol=2e-6)
    rule = decision or decide.Threshold(0.5)
    np.testing.assert_array_equal(sets.numpy(), rule.predict(probabilities.detach().numpy()))


@pytest.mark.parametrize("link", ["own", "raw"])
@each_case
def test_a_written_pipeline_reads_back_exactly(loss, calibrator, decision, link, tmp_path):
    pipeline = fitted(loss, calibrator, decision, link)
    scores = scores_of(pipeline.loss)
    pipeline.write(tmp_path / "pipeline.json")
    again = cr.Pipeline.read(tmp_path / "pipeline.json")
    np.testing.assert_array_equal(again.log_odds(scores), pipeline.log_odds(scores))
    np.testing.assert_array_equal(again.sets(scores), pipeline.sets(scores))
    assert again.state() == pipeline.state()


@pytest.mark.parametrize("name", CALIBRATORS[1:])
def test_a_calibrators_module_is_its_transform(name):
    fit = calibrate.from_name(name).fit(TRUE, TARGETS)
    wild = np.r_[TRUE, np.full((1, LABELS), np.inf), np.full((1, LABELS), -np.inf), 50 * TRUE[:9]]
    module = fit.to_module().double()
    np.testing.assert_allclose(
        module(torch.from_numpy(wild)).numpy(), fit.transform(wild), rtol=2e-5, atol=2e-5
    )


PLATEAUS = ["asl", "asl(detach_weight=true)", "asl(gamma_neg=1, margin=0.2)", "asl+lpr"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", PLATEAUS)
def test_a_link_with_a_plateau_makes_no_ties(loss, dtype):
    """Not in log-odds, not in float32 probabilities, and not in the torch module."""
    pipeline = cr.Pipeline(loss, context=CONTEXT)
    scores = np.linspace(-12, 4, 4001).astype(dtype)[:, None]
    assert (np.diff(pipeline.log_odds(scores)[:, 0]) > 0).all()
    assert (np.diff(pipeline.probabilities(scores).astype(np.float32)[:3000, 0]) > 0).all()
    module = pipeline.to_module()(torch.from_numpy(scores))[1].numpy()
    assert (np.diff(module[:3000, 0]) > 0).all()
    own = pipeline.loss.probabilities(scores)
    np.testing.assert_allclose(pipeline.probabilities(scores), own, atol=1.2e-7)


def test_a_pipeline_stored_by_version_0_2_means_the_link_as_it_was():
    pipeline = fitted("asl", "affine", None, "plateau")
    state = pipeline.state()
    del state["link"]
    again = cr.Pipeline.from_state(state)
    scores = scores_of(pipeline.loss)
    np.testing.assert_array_equal(again.log_odds(scores), pipeline.log_odds(scores))
    assert np.isneginf(again.link_log_odds(scores)).any()
    with pytest.raises(InputError, match="`link` must be one of"):
        cr.Pipeline.from_state({**state, "link": "own "})


def test_a_normalizer_is_stored_with_its_loss(tmp_path):
    pipeline = cr.Pipeline("quasibinary", context=CONTEXT)
    pipeline.loss.train()(torch.from_numpy(scores_of(pipeline.loss)), torch.from_numpy(TARGETS))
    pipeline.loss.eval()
    found = float(pipeline.loss.normalizer)
    pipeline.write(tmp_path / "p.json")
    assert found != 1.0
    assert float(cr.Pipeline.read(tmp_path / "p.json").loss.normalizer) == found


def test_rows_are_mapped_alone(monkeypatch):
    pipeline = fitted("quasibinary", "per-label", None)
    scores = scores_of(pipeline.loss)
    expected = pipeline.probabilities(scores)
    monkeypatch.setattr("credibly.runtime.BLOCK", 12)
    np.testing.assert_array_equal(pipeline.probabilities(scores), expected)


def test_torch_in_torch_out():
    found = cr.Pipeline("spa").sets(torch.zeros(2, 3))
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.bool


def test_without_a_loss_scores_are_log_odds():
    np.testing.assert_allclose(cr.Pipeline().probabilities(TRUE), expit(TRUE), rtol=1e-14)


def test_a_loss_without_a_link_asks_for_a_calibrator():
    with pytest.raises(InputError, match=r"has no link.*Fit one"):
        cr.Pipeline("twl").probabilities(np.zeros((2, 3), np.float32))


def test_a_loss_object_can_be_used_but_not_stored():
    pipeline = cr.Pipeline(losses.SPA())
    assert pipeline.probabilities(np.zeros((1, 2))).shape == (1, 2)
    with pytest.raises(InputError, match=r"by name.*cr\.Pipeline\('spa'"):
        pipeline.state()


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ([], "must be a JSON object"),
        ({"pipeline": 9}, "'pipeline': 1"),
        ({"pipeline": 1, "loss": 3}, "must hold its name and"),
        ({"pipeline": 1, "loss": {"name": "quasibinary", "buffers": {}}}, "must store"),
        ({"pipeline": 1, "loss": None, "calibrator": {"calibrator": "affine"}}, "slope"),
        ({"pipeline": 1, "loss": {"name": "nope"}}, "unknown loss"),
        ({"pipeline": 1, "loss": {"name": "spa", "context": {"x": 1}}}, "name and context"),
    ],
)
def test_damaged_files_are_errors_that_name_the_file(state, match, tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(state))
    with pytest.raises(InputError, match=match) as error:
        cr.Pipeline.read(path)
    assert str(path) in str(error.value)


def test_a_decision_that_is_not_fitted_cannot_be_exported():
    with pytest.raises(InputError, match="must be fitted first"):
        cr.Pipeline("spa", decision=decide.AverageSize(2)).to_module()
