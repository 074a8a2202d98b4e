"""The README's first figure and sentence say what the record of the study says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from benchmarks.studies import headline

ROOT = Path(__file__).parents[2]


def test_the_sentence_of_the_readme_is_that_of_the_record():
    lines = (ROOT / "benchmarks/studies/headline.jsonl").read_text(encoding="utf-8").splitlines()
    seeds = [json.loads(line) for line in lines]
    assert len(seeds) == 3
    half = {
        name: np.mean([seed[name]["curve"][5] for seed in seeds], axis=0)
        for name in seeds[0]
        if name in ("sigmoid", "calibrated")
    }
    hits = {
        name: np.mean([seed[name]["expected"] / seed[name]["real"] for seed in seeds])
        for name in half
    }
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for name in half:
        assert 0.5 <= half[name][0] <= 0.6
    assert f"are present in {half['sigmoid'][1]:.0%}".replace("%", " %") in text, half
    assert f"are present in {half['calibrated'][1]:.0%}".replace("%", " %") in text
    assert f"expects {hits['sigmoid']:.0f} times as many images" in text
    assert f"after calibration, {hits['calibrated']:.1f} times" in text
    assert "docs/img/what-0.9-means.svg" in text


def test_the_guarantee_beside_mapie_is_that_of_the_record():
    record = (ROOT / "benchmarks/studies/headline_peers.jsonl").read_text(encoding="utf-8")
    (ours, own), (theirs, peer) = json.loads(record).items()
    assert (ours, own["draws"], peer["draws"]) == ("credibly", 500, 500)
    assert own["recall"] > 0.9 - 2 * own["standard error"]
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"a guaranteed recall of 90 % reach {100 * own['recall']:.1f} % on average over 500" in text
    )
    assert f"{theirs} reaches {100 * peer['recall']:.1f} % on the same draws" in text
    assert f"sets of {peer['size']:.1f} labels instead of {own['size']:.1f}" in text


def drawn(picture: Path) -> tuple[list[str], list[float]]:
    """Return the texts of a picture, and the numbers of its curves and bars."""
    svg = picture.read_text(encoding="utf-8")
    paths = " ".join(re.findall(r' d="(.*?)"', svg, re.DOTALL))
    return re.findall(r"<!-- (.*?) -->", svg), [float(n) for n in re.findall(r"-?[\d.]+", paths)]


def test_the_picture_of_the_readme_is_that_of_the_record(tmp_path):
    headline.draw(headline.records(), tmp_path / "again.svg")
    texts, numbers = drawn(tmp_path / "again.svg")
    shown, places = drawn(headline.PICTURE)
    assert texts == shown, "run `make outputs`"
    np.testing.assert_allclose(numbers, places, atol=0.1, err_msg="run `make outputs`")
    assert len(numbers) > 1000
