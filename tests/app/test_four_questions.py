"""Four questions of a new user, answered from what the pages show in at most eight clicks."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from serve_browser import listening, wait_until

from credibly import Predictions
from credibly.app.server import create_app
from credibly.calibrate import Affine

pytestmark = pytest.mark.browser

SMALL = ["person", "bottle", "sheep", "dog", "car", "cat", "boat", "bird"]
MEASURED = Path(os.environ.get("CREDIBLY_DATA", Path(__file__).parents[3] / "shared" / "data"))


def small(images):
    """Data like VOC: eight labels, two of them overstated, some annotations turned around."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-3, 6, (3000, len(SMALL)))
    p = 1 / (1 + np.exp(-odds))
    rates = np.where([name in ("bottle", "sheep") for name in SMALL], 0.75, 1.0)
    right = rng.random(p.shape) < p * rates
    targets = (right ^ ((rng.random(p.shape) < 0.01) & (rates == 1))).astype(np.int8)
    ids = [f"2008_{row:06d}" for row in range(len(p))]
    for row, id in enumerate(ids):
        Image.new("RGB", (16, 12), (row % 256, 90, 140)).save(images / f"{id}.png")
    return p, targets, SMALL, ids


def real(images):
    """PASCAL VOC 2012: ridge regression on frozen features, one map of scores for all labels."""
    if not (MEASURED / "voc2012.npz").exists():
        pytest.skip("voc2012.npz is not here; set CREDIBLY_DATA to the folder of evaluation sets")
    with np.load(MEASURED / "voc2012.npz") as file:
        x, y = file["features"].astype(np.float32), file["targets"]
        labels, ids, test = file["labels"].tolist(), file["ids"], file["split"] == 1
    train = np.flatnonzero(~test)
    fitted, held_out = train[:4700], train[4700:]
    x = (x - x[fitted].mean(0)) / (x[fitted].std(0) + 1e-3)
    a = x[fitted].T @ x[fitted] + 3e3 * np.eye(x.shape[1], dtype=np.float32)
    scores = x @ np.linalg.solve(a, x[fitted].T @ (y[fitted] == 1).astype(np.float32))
    odds = Affine().fit(scores[held_out], y[held_out], coding="unknown").transform(scores[test])
    pictures = pq.read_table(
        MEASURED / "voc2012-images.parquet",
        columns=["id", "image"],
        filters=[("split", "=", "test")],
    )
    for id, content in zip(*(pictures[name].to_pylist() for name in ("id", "image")), strict=True):
        (images / f"{id}.jpg").write_bytes(content)
    return 1 / (1 + np.exp(-odds)), y[test], labels, ids[test].tolist()


@pytest.mark.parametrize("make", [small, real])
def test_four_questions_in_eight_clicks(open_page, tmp_path, make):
    images = tmp_path / "images"
    images.mkdir()
    p, y, labels, ids = make(images)
    Predictions.from_arrays(
        probabilities=p, targets=y, labels=labels, ids=ids, coding="unknown"
    ).write(tmp_path / "voc.parquet")
    known = y >= 0
    expected, present = (p * known).sum(0), (y == 1).sum(0)
    deviation = np.abs(expected - present) / np.sqrt((p * (1 - p) * known).sum(0))
    clicks = 0
    app = create_app([tmp_path / "voc.parquet"], images=images, annotate=tmp_path / "l.jsonl")
    with listening(app) as where:
        page = open_page(base_url=where)
        page.goto("/")
        page.wait_for_selector("#verdict")

        # 1. Can the probabilities be trusted? Read it; no click.
        said = page.locator("#verdict .headline").inner_text().replace("\xa0", " ")
        near = known & (np.abs(p - 0.8) <= 0.05)
        assert f"there {100 * y[near].mean():.0f} % of the time" in said
        grade = page.locator("#verdict .badge").inner_text()
        assert grade in ("usable with care", "not calibrated")

        # 2. Which two labels are off? They come first and are marked.
        marked = page.locator("#multiples li.off .name").all_inner_texts()
        assert len(marked) >= 2
        assert all(deviation[labels.index(name)] > 2.5 for name in marked)
        assert {name for t, name in enumerate(labels) if deviation[t] > 6} <= set(marked)
        page.locator("#multiples li.off a").first.click()
        clicks += 1
        page.wait_for_selector("#said")
        label = labels.index(marked[0])
        assert f"{present[label]:,.0f} have it" in page.locator("#said").inner_text()
        page.get_by_role("link", name="Overview").click()
        clicks += 1

        # 3. Show a mislabelled image.
        tile = page.locator("#wrong .tile").first
        id, name = (tile.get_attribute(f"data-{each}") for each in ("id", "label"))
        at = ids.index(id), labels.index(name)
        assert abs(p[at] - y[at]) > 0.9
        tile.locator("a").first.click()
        clicks += 1
        page.wait_for_url("**/row?**")
        wait_until(page, "[...document.images].at(-1).naturalWidth > 0")

        # 4. Which threshold finds 90 %?
        page.get_by_role("link", name="Decide", exact=True).click()
        page.get_by_role("link", name="Guarantee").click()
        clicks += 2
        page.wait_for_selector("#row-recall")
        limit = float(re.search(r"[\d.]+", page.locator("#threshold").inner_text())[0]) / 100
        some = (y == 1).any(1)
        shares = ((p >= limit) & (y == 1))[some].sum(1) / (y == 1)[some].sum(1)
        assert 0.9 <= shares.mean() <= 0.95
        told = float(page.locator("#row-recall").inner_text().removesuffix(" %"))
        assert told == pytest.approx(100 * shares.mean(), abs=0.3)  # the threshold is rounded
        assert "recall=0.9" in page.url
    assert clicks <= 8
