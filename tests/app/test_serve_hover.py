"""Charts say the values of a point near the pointer, or at the point chosen by keyboard."""

from __future__ import annotations

import re

import pytest
from serve_accessibility import violations
from serve_browser import ARTIFACTS
from serve_labels import LABELS

from credibly.app import report

pytestmark = pytest.mark.browser


def said(page):
    """Return the words beside the pointer."""
    tip = page.locator(".tip")
    assert tip.count() == 1
    return tip.inner_text() if tip.is_visible() else ""


def over(page, chart, share):
    """Move the pointer to a height in the middle and a share of the width of a chart."""
    chart.scroll_into_view_if_needed()
    area = chart.bounding_box()
    page.mouse.move(area["x"] + share * area["width"], area["y"] + area["height"] / 2)


@pytest.fixture(scope="module")
def written(shelf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hover")
    return report.write([shelf / "ours.parquet"], folder / "r.html", resamples=5)


@pytest.fixture(params=["app", "report"])
def opened(request, open_page, written):
    page = open_page()
    page.goto("/" if request.param == "app" else written.as_uri())
    page.locator("svg.heat .cell").first.wait_for()
    return page, request.param


def test_the_pointer_shows_the_values_of_the_nearest_point(opened):
    page, name = opened
    chart = page.locator("svg.drawing:has(.point)").first
    chart.scroll_into_view_if_needed()
    expected = chart.locator(".point title").first.text_content()
    point = chart.locator(".point").first.bounding_box()
    page.mouse.move(point["x"] + 9, point["y"] + 6)  # beside it
    assert said(page) == expected
    assert re.fullmatch(
        r"says [<>]? ?[\d.]+ %, is there [<>]? ?[\d.]+ %, [\d,]+ labels?", said(page)
    )
    assert chart.locator("title").count() == 0  # it would be shown a second time
    assert violations(page) == []
    page.screenshot(path=ARTIFACTS / f"hover-{name}.png")
    page.keyboard.press("Escape")
    assert said(page) == ""


def test_a_threshold_shows_what_is_found_and_right(opened):
    page, name = opened
    chart = page.locator("svg:has([data-cut])").first
    line = chart.locator("[data-tips]")
    chart.scroll_into_view_if_needed()
    area = line.bounding_box()
    page.mouse.move(area["x"] + 0.3 * area["width"], area["y"] + area["height"] - 2)
    assert re.fullmatch(r"30 %: \d+ % found, \d+ % right", said(page))
    page.screenshot(path=ARTIFACTS / f"hover-{name}-threshold.png")
    page.mouse.move(2, 2)
    assert said(page) == ""


def test_nothing_of_it_is_printed(opened):
    page, _ = opened
    over(page, page.locator("svg:has([data-cut])").first, 0.5)
    assert said(page)
    page.emulate_media(media="print")
    page.evaluate("document.querySelector('.tip').hidden = false")
    assert page.locator(".tip").is_hidden()
    assert page.locator(".tip-dot:visible").count() == 0


def test_a_cell_of_the_heat_map_shows_how_often_two_labels_occur_together(opened):
    page, name = opened
    cell = page.locator("svg.heat .cell").nth(3)
    cell.hover()
    assert re.fullmatch(r".+ and .+: .+ (times as often as by chance|to say)", said(page))
    page.screenshot(path=ARTIFACTS / f"hover-{name}-heat.png")


def test_a_small_chart_shows_its_points(opened):
    page, _ = opened
    over(page, page.locator("svg.multiple").first, 0.5)
    assert re.search(r"^says .+, is there .+, [\d,]+ rows?$", said(page))


def test_points_are_walked_with_the_arrow_keys(opened):
    page, _ = opened
    chart = page.locator("svg.drawing:has(.point)").first
    expected = chart.locator(".point title").all_text_contents()
    chart.focus()
    seen = []
    for _ in expected:
        page.keyboard.press("ArrowRight")
        seen.append(said(page))
    assert sorted(seen) == sorted(expected)
    page.keyboard.press("ArrowLeft")
    assert said(page) == seen[-2]
    assert violations(page) == []
    page.keyboard.press("Tab")
    assert said(page) == ""


def test_a_cell_that_has_focus_shows_its_values(page):
    page.goto("/")
    page.locator("svg.heat a").first.wait_for()
    page.locator("svg:has([data-cut])").first.focus()
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("!!document.activeElement.closest('.heat')"):
            break
    assert said(page).startswith(tuple(LABELS))


def test_the_lines_of_several_files_are_named(page):
    page.goto("/compare")
    chart = page.locator("svg.lines").first
    chart.wait_for()
    over(page, chart, 0.5)
    assert re.search(r"^(ours|theirs): says .+, is there ", said(page))


def test_the_script_is_small(page):
    assert len(page.request.get("/static/hover.js").body()) < 5000
