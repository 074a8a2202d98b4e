"""The papers' protocols: each makes settings, and is what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from credibly import InputError, losses
from credibly.cli import main
from credibly.papers import PRESETS, preset
from credibly.train import Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "training.md"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_settings(name):
    settings = Settings.from_mapping(preset(name).settings, name)
    assert settings.loss == PRESETS[name].settings["loss"]


def documented_presets() -> dict[str, dict[str, object]]:
    """The settings column of the table of docs/guide/training.md, by preset."""
    import tomllib

    found: dict[str, dict[str, object]] = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[1].strip("`") in PRESETS:
            settings = found.setdefault(cells[1].strip("`"), {})
            for text in re.findall(r"`([^`]+)`", cells[3]):
                for key, value in tomllib.loads(text).items():
                    settings[key] = tuple(value) if isinstance(value, list) else value
    return found


def test_the_table_of_the_papers_sentences_is_what_the_presets_set():
    table = documented_presets()
    assert set(table) == set(PRESETS)
    for name, settings in table.items():
        actual = {**PRESETS[name].data, **PRESETS[name].settings}
        assert {key: actual.get(key) for key in settings} == settings, name
    for name in ("spa-coco", "quasibinary-cifar", "avgk-cifar100"):  # described in full
        assert set(table[name]) == {*PRESETS[name].settings, *PRESETS[name].data}, name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_without_a_calibrator_has_a_link(name):
    settings = Settings.from_mapping(preset(name).settings, name)
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
