"""Rows, errors and what one does with them, in a real browser and by keyboard."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from serve_accessibility import violations
from serve_browser import ARTIFACTS
from serve_pages import PAGES

from credibly import Predictions

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


def shown_id(page):
    return parse_qs(urlsplit(page.url).query)["id"][0]


@pytest.mark.parametrize(
    "path", [*PAGES, "/?q=%2Bfork", "/compare?q=%2Bfork", "/errors?label=fork"]
)
def test_pages_have_no_accessibility_violations(page, path):
    page.goto(path)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, rules=["color-contrast"]) == []


@pytest.mark.parametrize("path", ["/?q=%2Bfork", "/errors?label=fork", "/row?id=img%2F000"])
def test_targets_are_large_enough_for_a_finger(open_page, path):
    page = open_page(viewport={"width": 390, "height": 800})
    page.goto(path)
    small = page.evaluate(
        """() => [...document.querySelectorAll("main button, main input[type=checkbox]")]
            .filter((each) => each.offsetParent)
            .map((each) => [each, (each.closest("label") || each).getBoundingClientRect()])
            .filter(([, area]) => area.width < 24 || area.height < 24)
            .map(([each]) => each.outerHTML)"""
    )
    assert small == []


def test_a_tile_opens_its_row_by_enter_and_by_click(page, ours):
    page.goto("/?q=%2Bfork")
    page.focus("#q")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Enter")
    page.wait_for_url("**/row?**")
    assert shown_id(page) == second
    page.go_back()
    third = page.locator(".tile").nth(2)
    name = third.get_attribute("data-id")
    third.click()
    page.wait_for_url("**/row?**")
    assert shown_id(page) == name
    page.screenshot(path=ARTIFACTS / "row.png", full_page=True)


def test_keys_walk_through_the_list_a_row_was_opened_from(page, ours):
    order = np.argsort(-ours.probabilities[:, 0], kind="stable")
    page.goto("/?q=%2Bfork")
    page.locator(".tile").first.click()
    page.wait_for_url("**/row?**")
    assert shown_id(page) == ours.ids[order[0]]
    for place in (1, 2):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(f"**id={ours.ids[order[place]].replace('/', '%2F')}**")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"**id={ours.ids[order[1]].replace('/', '%2F')}**")
    page.keyboard.press("Escape")
    page.wait_for_url("**/?q=%2Bfork**")


def test_selected_entries_are_exported(page):
    page.goto("/errors?label=fork&kind=false-alarm")
    page.wait_for_selector(".tile")
    page.locator(".tile a.open").first.focus()
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    assert page.locator("#selected").inner_text() == "2 selected"
    wanted = [json.loads(page.locator("input[name=entry]").nth(i).input_value()) for i in (0, 1)]
    with page.expect_download() as event:
        page.get_by_role("button", name="CSV of the selected").click()
    lines = event.value.path().read_text().splitlines()
    assert lines[0].startswith("id,label,probability")
    assert [line.split(",")[:2] for line in lines[1:]] == wanted
    page.screenshot(path=ARTIFACTS / "errors.png", full_page=True)


def test_facets_and_kinds_are_in_the_address(page):
    page.goto("/errors")
    page.get_by_role("link", name="False alarms").click()
    page.wait_for_url("**kind=false-alarm**")
    page.fill("input[name=label]", "apple")
    page.fill("input[name=low]", "0.8")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**low=0.8**")
    assert "kind=false-alarm" in page.url
    assert "label=apple" in page.url
    shares = page.locator(".tile .entry strong").all_inner_texts()
    assert shares
    assert all(float(share.split()[0]) >= 80 for share in shares)


def test_forms_and_links_work_without_scripts(open_page):
    page = open_page(java_script_enabled=False)
    page.goto("/errors?label=fork&kind=missed")
    page.locator("input[name=entry]").first.check()
    with page.expect_download() as event:
        page.get_by_role("button", name="CSV of the selected").click()
    assert len(event.value.path().read_text().splitlines()) == 2
    page.locator(".tile a.open").first.click()
    page.wait_for_url("**/row?**")
    page.locator("a[rel=next]").click()
    page.wait_for_url("**within**")


def test_marks_stay_visible_in_forced_colours(open_page):
    page = open_page(forced_colors="active")
    page.goto("/row?id=img%2F000")
    fill, track = (
        page.locator(f"#row-labels .{name}").first.evaluate("e => getComputedStyle(e).fill")
        for name in ("fill", "track")
    )
    assert fill != track
