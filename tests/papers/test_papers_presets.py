"""The papers' protocols: each makes settings, and is what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.preset_page import page

from credibly import InputError, losses
from credibly.cli import main
from credibly.papers import PRESETS, preset
from credibly.train import recipe

DOCUMENT = Path(__file__).parents[2] / "docs" / "papers" / "presets.md"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_settings(name):
    settings = recipe(**preset(name).settings)
    assert settings.loss == PRESETS[name].settings["loss"]


def test_the_page_is_what_the_presets_set():
    assert DOCUMENT.read_text(encoding="utf-8") == page(), (
        "run python -m benchmarks.preset_page > docs/papers/presets.md"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_without_a_calibrator_has_a_link(name):
    settings = recipe(**preset(name).settings)
    loss = losses.from_name(settings.loss, num_labels=3, num_rows=5, average_size=2)
    assert loss.has_link or settings.calibrate != "none"


def test_the_split_of_a_protocol_reaches_the_data(tmp_path, monkeypatch):
    seen = {}

    def load(source, **options):
        seen.update(options)
        raise InputError("enough")

    monkeypatch.setattr("credibly.data.load", load)
    command = ["train", "digits", "--preset", "avgk-cifar100", "--out", str(tmp_path / "x")]
    assert main(command) == 2
    assert seen["calibration"] == 0.1
    assert main([*command, "--calibration", "0.3"]) == 2
    assert seen["calibration"] == 0.3
