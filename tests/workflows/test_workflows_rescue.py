"""The default of ``calibrate_scores`` is never worse than what was given."""

import numpy as np
import pytest

import credibly as cr

OFFICIAL = "asl(gamma_neg=4, gamma_pos=0, margin=0.05, detach_weight=true)"


def sigmoid(log_odds):
    return 1 / (1 + np.exp(-log_odds))


def trained_to_the_end(rows=4000, labels=6, seed=0):
    """Return scores of which most lie below ASL's margin, where they still tell rates apart."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-4.5, 2.5, (rows, labels)).astype(np.float32)
    targets = (rng.random(scores.shape) < sigmoid(1.2 * scores + 2.5)).astype(np.int8)
    return scores, targets


def stopped_early(rows=4000, labels=6, seed=0):
    """Return scores above ASL's margin whose rates are those of its link."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-2.5, 4, (rows, labels)).astype(np.float32)
    targets = rng.random(scores.shape) < cr.Pipeline(OFFICIAL).probabilities(scores)
    return scores, targets.astype(np.int8)


def log_loss(pipeline, scores, targets):
    return float(cr.metrics.log_loss(pipeline.probabilities(scores), targets))


SITUATIONS = [trained_to_the_end, stopped_early]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_default_is_within_one_percent_of_the_best_column(situation):
    scores, targets = situation()
    new, truth = situation(seed=1)
    found = log_loss(cr.calibrate_scores(scores, targets, OFFICIAL).pipeline, new, truth)
    columns = [
        log_loss(cr.calibrate_scores(scores, targets, loss, method=method).pipeline, new, truth)
        for loss in (OFFICIAL, "bce")
        for method in ("none", "affine")
    ]
    assert found <= 1.01 * min(columns)


@pytest.mark.parametrize("loss", [OFFICIAL, "asl", "bce", "spa", "twl", "focal(gamma_neg=3)"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_default_is_not_worse_than_what_was_given(situation, loss):
    """On the rows left out, by more than one standard error; so the table says it."""
    result = cr.calibrate_scores(*situation(rows=600), loss=loss)
    given = [one for one in result.candidates if one.calibrator == "none"]
    chosen = next(
        one
        for one in result.candidates
        if (one.stage, one.calibrator) == (result.pipeline.link, result.calibrator.name)
    )
    assert len(given) == (1 if loss in ("bce", "twl") else 2)
    assert all(chosen.log_loss <= one.log_loss + chosen.error for one in given)
    table = result.candidate_table()
    assert len(table) == 5 * len(given)
    assert [row[2] for row in table] == sorted(row[2] for row in table)


@pytest.mark.filterwarnings("ignore:.*its calibration map was fitted on:UserWarning")
@pytest.mark.parametrize("method", ["auto", "none", "affine"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_ranking_by_the_probabilities_is_not_worse_than_by_the_scores(situation, method, tmp_path):
    scores, targets = situation()
    result = cr.calibrate_scores(scores, targets, OFFICIAL, method=method)
    found = result.predictions
    by_scores, by_probabilities = (
        cr.metrics.mean_average_precision(values, targets)
        for values in (scores, found.probabilities)
    )
    assert by_probabilities >= by_scores - 1e-6  # at the top ASL's link is flat in float32
    found.write(tmp_path / "p.parquet")
    assert cr.evaluate(tmp_path / "p.parquet").numbers["mAP@y"] >= by_scores - 1e-9


def test_the_share_on_the_plateau_is_said():
    scores, targets = trained_to_the_end()
    result = cr.calibrate_scores(scores, targets, OFFICIAL)
    margin = np.log(0.05 / 0.95)
    assert result.plateau == pytest.approx((scores[result.held_out] <= margin).mean())
    assert f"{100 * result.plateau:.3g} % of the scores lie below the margin" in result.advice
    assert result.to_dict()["plateau"] == result.plateau
    assert not cr.calibrate_scores(scores, targets, "bce").advice


def test_a_rise_of_ace_is_said(tmp_path):
    """Rows to fit on whose truth is noise give a map that is wrong on the others."""
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, (2000, 3)).astype(np.float32)
    targets = (rng.random(odds.shape) < sigmoid(odds)).astype(np.int8)
    split = np.arange(2000) % 2 + 1
    noise = np.where(split[:, None] == 2, rng.integers(0, 2, odds.shape), targets)
    for truth, rises in ((noise, True), (targets, False)):
        np.savez(tmp_path / "s.npz", scores=odds, targets=truth, split=split)
        found = cr.workflows.calibrate_file(tmp_path / "s.npz", "bce", method="affine")
        assert ("ACE rises by" in found.advice) == rises
        stages = list(found.stages.values())
        assert found.ace_change.estimate == pytest.approx(stages[-1]["ACE"] - stages[-2]["ACE"])


def one_each(rows=2000, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2.0, (rows, labels))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return (3 * scores).astype(np.float32), np.array([rng.multinomial(1, row) for row in shares])


@pytest.mark.parametrize("method", ["auto", "softmax-temperature", "vector"])
@pytest.mark.parametrize("loss", ["softmax", "softmax(zero_label=none_class)"])
def test_rows_of_a_softmax_keep_their_sum(loss, method):
    scores, targets = one_each()
    if "none" in loss:
        targets[::5] = 0
    result = cr.calibrate_scores(scores, targets, loss, method=method)
    sums = result.predictions.probabilities.sum(axis=1)
    assert (sums <= 1 + 1e-5).all()
    if "none" not in loss:
        np.testing.assert_allclose(sums, 1, atol=1e-5)
    assert result.change.high < 0
    assert "sum" not in result.advice


def test_a_map_per_label_of_a_softmax_says_that_rows_no_longer_sum_to_one():
    result = cr.calibrate_scores(*one_each(), "softmax", method="affine")
    assert "do not sum to 1" in result.advice
    sums = result.predictions.probabilities.sum(axis=1)
    assert abs(sums - 1).max() > 0.1


def test_a_map_that_keeps_sums_refuses_labels_on_their_own():
    with pytest.raises(cr.InputError, match="sum to at most 1 in each row"):
        cr.calibrate_scores(*stopped_early(), "bce", method="vector")
    with pytest.raises(cr.InputError, match="unknown calibrator 'choose'"):
        cr.calibrate_scores(*stopped_early(), "bce", method="choose")
