"""Batch after batch, chunk after chunk, process beside process: the same as the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from metric_cases import CASES, make_case
from metric_process import SPLITS, feed, make_metrics, results

from credibly import InputError, metrics

each_case = pytest.mark.parametrize(("probabilities", "targets"), CASES.values(), ids=CASES.keys())
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def in_chunks(probabilities, targets, size=9, scores=None):
    found = metrics.Summary(targets.shape[1])
    for begin in range(0, len(targets), size):
        rows = slice(begin, begin + size)
        found.update(probabilities[rows], targets[rows], None if scores is None else scores[rows])
    return found


@each_case
def test_chunks_give_the_whole(probabilities, targets):
    found = in_chunks(probabilities, targets)
    assert found.rows == len(targets)
    assert found.known == (targets >= 0).sum()
    for kind in ("ace", "mce", "ece"):
        for average in ("pooled", "macro", None):
            np.testing.assert_allclose(
                found.bins.error(kind, 3, average),
                metrics.calibration_error(probabilities, targets, kind, 15, 3, average),
                **CLOSE,
            )
    for average in ("pooled", "macro", None):
        for name in ("log_loss", "brier"):
            whole = getattr(metrics, name)(probabilities, targets, average)
            np.testing.assert_allclose(getattr(found.proper, name)(average), whole, **CLOSE)
    for per_label in (False, True):
        whole = metrics.reliability(probabilities, targets, per_label=per_label)
        for name, part in vars(found.bins.reliability(per_label)).items():
            np.testing.assert_allclose(part, getattr(whole, name), **CLOSE)
    columns = [
        metrics.average_precision(*each) for each in zip(probabilities.T, targets.T, strict=True)
    ]
    whole = metrics.summary(probabilities, targets)
    for name, number in found.numbers(np.array(columns)).items():
        assert number == pytest.approx(whole[name], abs=1e-12, nan_ok=True)


def test_chunks_rank_by_scores_where_given():
    probabilities, targets = CASES["unknown"]
    scores = np.random.default_rng(0).normal(size=targets.shape)
    found = in_chunks(probabilities, targets, scores=scores)
    expected = metrics.mean_average_precision(scores, targets, over="samples")
    assert found.numbers()["mAP@x"] == pytest.approx(expected)
    assert metrics.summary(probabilities, targets, scores)["mAP@x"] == pytest.approx(expected)


def test_merged_workers_give_the_whole():
    probabilities, targets = CASES["unknown"]
    first = in_chunks(probabilities[:21], targets[:21])
    first.merge(in_chunks(probabilities[21:], targets[21:]).state())
    whole = in_chunks(probabilities, targets)
    assert first.numbers(min_count=5) == pytest.approx(whole.numbers(min_count=5))
    np.testing.assert_array_equal(first.sets.confusion(), whole.sets.confusion())
    for name, column in first.by_label().items():
        np.testing.assert_allclose(column, whole.by_label()[name], **CLOSE)
    with pytest.raises(InputError, match="only accumulators of the same labels and bins"):
        first.merge(metrics.Summary(3).state())
    with pytest.raises(InputError, match="must have 7 labels"):
        first.update(probabilities[:, 1:], targets[:, 1:])


def test_sizes_count_known_entries():
    probabilities, targets = CASES["unknown"]
    known = targets >= 0
    found = in_chunks(probabilities, targets)
    assert found.numbers()["expected size"] == pytest.approx(
        (probabilities * known).sum() / len(targets)
    )
    assert found.numbers()["true size"] == pytest.approx((targets == 1).sum() / len(targets))


@each_case
def test_batches_give_the_whole(probabilities, targets):
    measured = make_metrics(targets.shape[1])
    feed(measured, torch.from_numpy(probabilities), torch.from_numpy(targets), batch=11)
    expected = {
        "ace": metrics.calibration_error(probabilities, targets),
        "counted": metrics.calibration_error(probabilities, targets, min_count=15),
        "mce": metrics.calibration_error(probabilities, targets, "mce", 7, average="macro"),
        "log_loss": metrics.log_loss(probabilities, targets),
        "brier": metrics.brier(probabilities, targets, average=None),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(measured[name].compute().numpy(), value, **CLOSE)


def test_binned_average_precision_is_exact_on_its_grid_and_close_off_it():
    log_odds = np.random.default_rng(0).normal(-1, 2, (3000, 5))
    targets = (
        np.random.default_rng(1).random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))
    ).astype(int)
    for values, tolerance in [(np.round(log_odds, 1) + 0.005, 1e-12), (log_odds, 1e-3)]:
        probabilities = 1 / (1 + np.exp(-values))
        metric = metrics.streaming.AveragePrecision(5, average=None)
        metric.update(torch.from_numpy(probabilities), torch.from_numpy(targets))
        exact = metrics.average_precision(values, targets)
        np.testing.assert_allclose(metric.compute().numpy(), exact, rtol=0, atol=tolerance)


def test_certain_probabilities_have_a_bin():
    metric = metrics.streaming.AveragePrecision(1)
    metric.update(torch.tensor([[1.0], [0.0], [0.5]]), torch.tensor([[1], [0], [1]]))
    assert metric.compute() == 1


def test_a_batch_value_and_a_reset_are_those_of_torchmetrics():
    probabilities, targets = (torch.from_numpy(array) for array in CASES["unknown"])
    metric = metrics.streaming.LogLoss(targets.shape[1])
    batch = metric(probabilities[:20], targets[:20])
    assert batch == pytest.approx(metrics.log_loss(probabilities[:20], targets[:20]).item())
    metric(probabilities[20:], targets[20:])
    assert metric.compute() == pytest.approx(metrics.log_loss(probabilities, targets).item())
    metric.reset()
    metric.update(probabilities[:5].bfloat16(), targets[:5])
    expected = metrics.log_loss(probabilities[:5].bfloat16(), targets[:5])
    assert metric.compute() == pytest.approx(expected.item())


@pytest.mark.parametrize("kind", ["Summary", *metrics.streaming.__all__])
def test_the_coding_is_judged_over_all_that_was_seen(kind):
    probabilities, targets = make_case(rows=30, labels=3, unknown=False, seed=2)
    parts = [slice(0, 10), slice(10, 20), slice(20, 30)]
    make = metrics.Summary if kind == "Summary" else getattr(metrics.streaming, kind)

    def fed(values, **options):
        metric = make(3, **options)
        for rows in parts:
            metric.update(torch.from_numpy(probabilities[rows]), torch.from_numpy(values[rows]))
        return repr((metric.numbers if kind == "Summary" else metric.compute)())

    signed = np.where(targets > 0, 1, -1)
    with pytest.raises(InputError, match=r"only −1 and \+1.*signed.*unknown"):
        fed(signed)
    assert fed(signed, coding="signed") == fed(targets)
    assert fed(signed, coding="unknown") != fed(targets)
    late = signed.copy()
    late[-1] = 0  # what settles it comes in the last batch
    assert fed(late) == fed(late, coding="unknown")
    first = slice(0, 10)
    first_positive = signed.copy()
    first_positive[first] = 1  # a batch without −1 does not contradict coding="signed"
    assert fed(first_positive, coding="signed") == fed(np.maximum(first_positive, 0))
    with pytest.raises(InputError, match="must hold −1 for absent"):
        fed(np.maximum(signed, 0), coding="signed")


def test_the_value_of_one_batch_is_given_whatever_its_coding():
    metric = metrics.streaming.LogLoss(2)
    probabilities = torch.tensor([[0.5, 0.5]])
    metric(probabilities, torch.tensor([[1, -1]]))
    metric(probabilities, torch.tensor([[1, 0]]))
    assert metric.compute() == pytest.approx(np.log(2))


@pytest.mark.parametrize("kind", ["LogLoss", "Brier", "CalibrationError", "AveragePrecision"])
def test_soft_targets_stream(kind):
    probabilities, _ = make_case(rows=40, labels=3, ties=True)
    soft = np.random.default_rng(0).integers(0, 11, probabilities.shape) / 10
    metric = getattr(metrics.streaming, kind)(3, average=None)
    for rows in (slice(0, 13), slice(13, 40)):
        metric.update(torch.from_numpy(probabilities[rows]), torch.from_numpy(soft[rows]))
    whole = {
        "LogLoss": metrics.log_loss,
        "Brier": metrics.brier,
        "CalibrationError": metrics.calibration_error,
    }
    if kind == "AveragePrecision":
        expected = metrics.average_precision(probabilities, soft)
    else:
        expected = whole[kind](probabilities, soft, average=None)
    np.testing.assert_allclose(metric.compute().numpy(), expected, **CLOSE)


def test_memory_does_not_grow():
    metric = metrics.streaming.CalibrationError(7)
    before = sum(each.numel() for each in metric.metric_state.values())
    for seed in range(5):
        metric.update(*(torch.from_numpy(array) for array in make_case(seed=seed)))
    after = sum(each.numel() for each in metric.metric_state.values())
    assert after == before == 7 * 15 * 3 + 4  # bins, and which values targets had


def test_bad_batches_are_refused_and_leave_no_trace():
    probabilities, targets = (torch.from_numpy(array) for array in CASES["unknown"])
    metric = metrics.streaming.Brier(7)
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
        metric.update(probabilities * 3, targets)
    with pytest.raises(InputError, match="must have 7 labels"):
        metric.update(probabilities[:, :3], targets[:, :3])
    assert not any(each.any() for each in metric.metric_state.values())


def test_processes_give_the_whole_however_unequally_they_are_fed(tmp_path):
    worker = Path(__file__).with_name("metric_process.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, worker, str(rank), tmp_path / "meet", tmp_path / f"{rank}.json"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    probabilities, targets = (torch.from_numpy(array) for array in make_case(seed=11))
    whole = make_metrics(targets.shape[1])
    feed(whole, probabilities, targets, batch=60)
    expected = results(whole)
    for rank in (0, 1):
        answers = json.loads((tmp_path / f"{rank}.json").read_text())
        for split in SPLITS:
            for name, value in expected.items():
                np.testing.assert_allclose(answers[split][name], value, **CLOSE)


def test_the_room_opens_without_torch_and_torchmetrics():
    code = """
import sys
sys.modules["torchmetrics"] = None
import credibly.metrics
assert "torch" not in sys.modules
try:
    credibly.metrics.streaming
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install torchmetrics" in done.stdout
