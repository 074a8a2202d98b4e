"""Targets are decoded at the public door; what is behind it takes them as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import credibly as cr
from credibly import calibrate, decide, metrics, plot, retrieve, targets
from credibly.app import report
from credibly.pipeline import Pipeline
from credibly.predictions import Predictions
from credibly.targets import Targets
from credibly.train import Network, fit

RNG = np.random.default_rng(0)
PROBABILITIES = RNG.random((60, 6)).astype(np.float32)
HARD = (RNG.random((60, 6)) < PROBABILITIES).astype(np.int8)
HARD[3, 2] = -1
SCORES = RNG.normal(size=(60, 6))
SETS = PROBABILITIES > 0.5
LABELS = list("abcdef")

CALLS: dict[str, Callable[[Any], Any]] = {
    "summary": lambda y: metrics.summary(PROBABILITIES, y, sets=SETS),
    "summary_intervals": lambda y: metrics.summary_intervals(PROBABILITIES, y, resamples=5),
    "log_loss": lambda y: metrics.log_loss(PROBABILITIES, y),
    "average_precision": lambda y: metrics.average_precision(PROBABILITIES, y),
    "mean_average_precision": lambda y: metrics.mean_average_precision(PROBABILITIES, y),
    "calibration_error": lambda y: metrics.calibration_error(PROBABILITIES, y),
    "calibration_noise": lambda y: metrics.calibration_noise(PROBABILITIES, y, repeats=2),
    "top_k_f1": lambda y: metrics.top_k_f1(PROBABILITIES, y, 2),
    "set_coverage": lambda y: metrics.set_coverage(SETS, y),
    "zero_label": lambda y: metrics.zero_label(PROBABILITIES, y),
    "retrieval_map": lambda y: metrics.retrieval_map(PROBABILITIES, y, 2),
    "interval": lambda y: metrics.interval(metrics.brier, PROBABILITIES, y, resamples=3),
    "calibrator": lambda y: calibrate.Affine().fit(PROBABILITIES, y).state(),
    "decision": lambda y: decide.BestF().fit(PROBABILITIES, y).state(),
    "joint": lambda y: retrieve.fit_joint(PROBABILITIES, y, LABELS).log_scores,
    "pipeline": lambda y: (
        Pipeline(None, calibrate.Affine(), decide.BestF()).fit(PROBABILITIES, y).state()
    ),
    "chosen calibrator": lambda y: calibrate.choose({"a": SCORES, "b": SCORES / 2}, y).stage,
    "reliability diagram": lambda y: plot.reliability(PROBABILITIES, y).lines[-1].get_ydata(),
    "predictions": lambda y: (
        Predictions.from_arrays(probabilities=PROBABILITIES, targets=y, labels=LABELS).targets
    ),
}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often values of targets are given their meaning."""
    counted: list[int] = []
    inner = targets._decode

    def counting(*arguments: Any) -> Any:
        counted.append(1)
        return inner(*arguments)

    monkeypatch.setattr(targets, "_decode", counting)
    return counted


@pytest.mark.parametrize("name", CALLS)
def test_a_public_call_decodes_targets_once(name: str, decoded: list[int]) -> None:
    CALLS[name](HARD)
    assert len(decoded) == 1


@pytest.mark.parametrize("name", CALLS)
def test_decoded_targets_are_taken_as_they_are(name: str, decoded: list[int]) -> None:
    CALLS[name](Targets(HARD))
    assert not decoded


@pytest.mark.parametrize("name", CALLS)
def test_decoded_targets_give_the_result_of_what_they_were_decoded_from(name: str) -> None:
    np.testing.assert_equal(CALLS[name](Targets(HARD)), CALLS[name](HARD.astype(np.float64)))


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_decodes_when_it_reads_and_when_it_selects(
    epochs: int, decoded: list[int], tmp_path: Path
) -> None:
    features = RNG.normal(size=(60, 3)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", features=features, targets=HARD, split=np.arange(60) % 3 == 0)
    data = cr.data.load(tmp_path / "rows.npz")
    recipe = Network(model="mlp", hidden=4, epochs=epochs, dropout=0.0)
    fit(data, recipe, folder=tmp_path / "run")
    assert len(decoded) == 2


def test_a_report_on_predictions_decodes_nothing(decoded: list[int]) -> None:
    rows = Predictions(PROBABILITIES, LABELS, np.arange(60).astype(str), HARD)
    report.render({"rows": rows}, resamples=10)
    assert not decoded


def test_decoded_targets_of_another_number_of_labels_are_refused() -> None:
    with pytest.raises(targets.checks.InputError, match=r"one column per label, 5; got 6"):
        targets.decode(Targets(HARD), num_labels=5)


def test_soft_targets_are_refused_where_only_hard_ones_have_a_meaning() -> None:
    with pytest.raises(targets.checks.InputError, match="0, 1 or −1"):
        targets.decode(Targets(np.array([[0.5, 1.0]])), soft=False)
