"""What pages show first: numbers that do not mislead, and what matters within the first screen."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app.server import create_app


@pytest.fixture
def client(shelf):
    with TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"])) as client:
        yield client


def test_a_probability_that_is_not_zero_is_not_shown_as_zero(tmp_path):
    p = [[0.9997, 0.0002], [0.0, 1.0]]
    Predictions.from_arrays(probabilities=p, targets=[[1, 0], [0, 1]], labels=["a", "b"]).write(
        tmp_path / "p.parquet"
    )
    with TestClient(create_app([tmp_path / "p.parquet"], hosts=["testserver"])) as client:
        cells = [
            re.findall(r"<td>([^<]*?%)</td>", client.get(f"/row?id={id}").text)[::2]
            for id in ("0", "1")
        ]
    assert cells == [["&gt; 99.9 %", "&lt; 0.1 %"], ["100.0 %", "0.0 %"]]


@pytest.mark.parametrize("rule", ["threshold=0.3", "miss=4", "average_size=2"])
def test_the_first_page_begins_at_the_rule_in_force(client, rule):
    page = client.get(f"/?{rule}").text
    limit = client.get(f"/api/thresholds?{rule}").json()["thresholds"]
    (cut,) = set(limit.values()) if isinstance(limit, dict) else set(limit)
    slider = re.search(r'<input type="range" id="cut"[^>]* value="([\d.]+)"', page)
    assert slider
    assert float(slider[1]) == pytest.approx(cut, abs=0.006)
    assert f"A threshold of <strong>{100 * float(slider[1]):.0f} %" in page


@pytest.mark.browser
def test_the_bars_of_a_row_are_on_the_first_screen_of_the_panel(page):
    page.goto("/explore")
    page.locator(".tile a.open").first.focus()
    page.keyboard.press(" ")
    page.wait_for_selector("#panel #row-labels")
    box = page.locator("#panel #row-labels tbody tr").first.bounding_box()
    assert box["y"] < page.viewport_size["height"] - 100


@pytest.mark.browser
def test_the_threshold_of_the_first_page_is_taken_to_decide(page):
    page.goto("/")
    page.locator("#cut").fill("0.3")
    assert "30 %" in page.locator("#cut-words").inner_text()
    page.get_by_role("button", name="Use this threshold").click()
    page.wait_for_url("**/decide?by=threshold&threshold=0.3")
    assert "30 %" in page.locator(".rule-chip").inner_text()


@pytest.mark.browser
def test_a_phone_shows_rows_on_the_first_screen_of_explore(open_page):
    page = open_page(viewport={"width": 390, "height": 844})
    page.goto("/explore?q=%2Bfork")
    tiles = page.locator("#tiles > .tile")
    first, second = (tiles.nth(place).bounding_box() for place in range(2))
    assert first["y"] < 600
    assert second["y"] == first["y"]


@pytest.mark.browser
def test_the_description_of_the_api_is_whole_on_paper(page):
    page.goto("/docs")
    assert not page.get_by_text("name of a label; empty for all").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator(".endpoint td").first.bounding_box()["height"] > 5
