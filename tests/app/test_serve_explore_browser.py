"""Rows, errors and what one does with them, in a real browser and by keyboard."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from serve_accessibility import violations
from serve_browser import ARTIFACTS, wait_until
from serve_pages import PAGES

from credibly import Pipeline, Predictions, calibrate_scores, evaluate
from credibly.retrieve import Index, search
from credibly.review import ReviewLog, label_issues

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


def shown_id(page):
    return parse_qs(urlsplit(page.url).query)["id"][0]


REACHABLE = """() => [...document.querySelectorAll('.scroll')].every(
    each => each.scrollWidth <= each.clientWidth || each.tabIndex == 0)"""


@pytest.mark.parametrize(
    "path",
    [*PAGES, "/?q=%2Bfork", "/compare?q=%2Bfork", "/errors?label=fork", "/decide?by=cost&miss=-3"],
)
def test_pages_have_no_accessibility_violations(page, path):
    page.goto(path)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, rules=["color-contrast"]) == []
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 800})
    wait_until(page, REACHABLE)
    assert violations(page) == []


@pytest.mark.parametrize(
    "card", ["predictions", "answer", "images", "issues", "pipeline", "evaluation", "calibrated"]
)
def test_cards_of_notebooks_have_no_accessibility_violations(page, ours, shelf, card):
    made = {
        "predictions": lambda: ours,
        "answer": lambda: Index.read(shelf / "ours.parquet").search("+fork"),
        "images": lambda: search(shelf / "ours.parquet", "+fork -apple").with_images(
            shelf / "images"
        ),
        "issues": lambda: label_issues(ours),
        "pipeline": lambda: Pipeline("bce"),
        "evaluation": lambda: evaluate(shelf / "ours.parquet"),
        "calibrated": lambda: calibrate_scores(ours.scores, ours.targets, loss="bce"),
    }[card]()
    page.set_content(
        f"<html lang=en><title>card</title><main><h1>Notebook</h1>{made._repr_html_()}</main>"
    )
    assert violations(page) == []


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


def test_the_rail_wants_and_excludes_labels_without_scripts(open_page, ours):
    page = open_page(java_script_enabled=False)
    page.goto("/explore")
    page.locator("#rail a[title='want fork']").click()
    page.locator("#rail a[aria-label='exclude knife']").click()
    assert parse_qs(urlsplit(page.url).query)["q"] == ["+fork -knife"]
    joint = ours.probabilities[:, 0].astype(float) * (
        1 - ours.probabilities[:, ours.labels.index("knife")].astype(float)
    )
    assert page.locator(".tile").first.get_attribute("data-id") == ours.ids[joint.argmax()]
    page.get_by_role("link", name="False alarms").click()
    assert "kind=false-alarm" in page.url
    labels = {each.get_attribute("data-label") for each in page.locator(".tile").all()}
    assert labels == {"fork"}
    knife = dict(zip(ours.ids, ours.probabilities[:, ours.labels.index("knife")], strict=True))
    ids = [each.get_attribute("data-id") for each in page.locator(".tile").all()]
    assert ids
    assert all(knife[id] < 0.5 for id in ids)


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
    page.fill("input[name=low]", "0.8")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**low=0.8**")
    assert "kind=false-alarm" in page.url
    shares = page.locator(".tile .joint strong").all_inner_texts()
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


def test_marks_stay_visible_in_forced_colours(open_page):
    page = open_page(forced_colors="active")
    page.goto("/row?id=img%2F000")
    fill, track = (
        page.locator(f"#row-labels .{name}").first.evaluate("e => getComputedStyle(e).fill")
        for name in ("fill", "track")
    )
    assert fill != track


def logged(shelf):
    return ReviewLog(shelf / "corrections.jsonl").latest()


def press(page, key):
    with page.expect_response("**/api/reviews**") as answer:
        page.keyboard.press(key)
    assert answer.value.ok


def tab_to(page, wanted, key="Tab"):
    """Press Tab until the focus is on what is wanted."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate(f"document.activeElement.matches({wanted!r})"):
            return
    pytest.fail(f"{wanted} is not reached by {key}")


def test_search_panel_review_and_undo_by_keyboard_alone(page, ours, shelf):
    order = np.argsort(-ours.probabilities[:, ours.labels.index("dining table")], kind="stable")
    page.goto("/")
    page.keyboard.type("+din")
    page.wait_for_selector("#suggestions li")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#chips .chip").inner_text().startswith("+ dining table")
    page.keyboard.press("Enter")
    page.wait_for_selector("body:has(.tile):has(#panel)")
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    for place in range(3):
        page.wait_for_selector(f"#panel:not([hidden]) h2:text-is('{ours.ids[order[place]]}')")
        page.keyboard.press("ArrowRight" if place < 2 else "Shift")
    assert page.locator("#panel #row-labels tbody tr").count() == 7
    assert violations(page) == []
    page.screenshot(path=ARTIFACTS / "panel.png")
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert page.evaluate("document.activeElement.dataset.id") == ours.ids[order[2]]

    page.keyboard.press("/")
    tab_to(page, "nav a[href^='/review']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reviewing .tile.current")
    tab_to(page, "#who", "Shift+Tab")
    page.keyboard.type("Ana")
    page.keyboard.press("Enter")
    page.wait_for_url("**who=Ana**")
    tiles = page.locator(".tile")
    pairs = [
        (tiles.nth(place).get_attribute("data-id"), tiles.nth(place).get_attribute("data-label"))
        for place in range(4)
    ]
    current = ".tile.current[data-id='{}'][data-label='{}']".format
    page.wait_for_selector(current(*pairs[0]))
    assert page.evaluate("document.activeElement.closest('.tile').dataset.id") == pairs[0][0]
    assert pairs[0][1] in tiles.first.locator(".question").inner_text()
    for place, key in enumerate("ynu"):
        press(page, key)
        page.wait_for_selector(current(*pairs[place + 1]))
    decided = [logged(shelf)[pair] for pair in pairs[:3]]
    assert [each.to_dict()["value"] for each in decided] == ["present", "absent", "unsure"]
    assert {each.who for each in decided} == {"Ana"}
    press(page, "z")
    page.wait_for_selector(current(*pairs[2]))
    assert pairs[2] not in logged(shelf)
    page.screenshot(path=ARTIFACTS / "review.png")
    page.reload()
    listed = {(t.get_attribute("data-id"), t.get_attribute("data-label")) for t in tiles.all()}
    assert not set(pairs[:2]) & listed
    assert pairs[2] in listed
    page.get_by_role("link", name="Evaluate again").click()
    page.wait_for_url("**/review/effect**")
    assert int(page.locator("#changed").inner_text()) > 0
    page.screenshot(path=ARTIFACTS / "effect.png", full_page=True)
    assert violations(page) == []


def test_the_next_questions_come_without_a_reload(page):
    page.goto("/review?label=apple&top=2&truth=known")
    page.evaluate("window.same = true")
    seen = set()
    for _ in range(3):
        current = page.locator(".tile.current").get_attribute("data-id")
        seen.add(current)
        press(page, "u")
        wait_until(
            page, "last => document.querySelector('.tile.current').dataset.id !== last", current
        )
    assert len(seen) == 3
    assert page.evaluate("window.same")


def test_a_decision_that_is_not_saved_is_told(page):
    page.goto("/review?label=apple")
    page.route(
        "**/api/reviews**",
        lambda route: route.fulfill(status=400, json={"error": "nothing was saved: no space"}),
    )
    page.locator(".tile.current [data-decide=present]").click()
    page.wait_for_selector("#review-problem:not([hidden])")
    assert "nothing was saved" in page.locator("#review-problem").inner_text()
    assert page.locator("[aria-pressed=true]").count() == 0


def test_decisions_work_without_scripts_and_on_the_page_of_a_row(open_page, shelf):
    plain = open_page(java_script_enabled=False)
    plain.goto("/review?label=knife&who=Bo")
    id = plain.locator(".tile").first.get_attribute("data-id")
    plain.locator(".tile [data-decide=absent]").first.click()
    plain.wait_for_load_state()
    assert logged(shelf)[id, "knife"].who == "Bo"
    page = open_page()
    page.goto("/row?id=img%2F002")
    with page.expect_response("**/api/reviews**"):
        page.locator("tr", has_text="dining table").locator("[data-decide=unsure]").click()
    assert logged(shelf)["img/002", "dining table"].to_dict()["value"] == "unsure"


def test_the_cost_follows_the_numbers_live(page):
    page.goto("/decide?miss=5&false_alarm=1")
    before = page.locator("#cost").inner_text()
    with page.expect_response("**/decide**"):
        page.fill("form[data-live] input[name=miss]", "50")
    wait_until(page, "before => document.getElementById('cost').innerText !== before", before)
    assert "miss=50" in page.url
    assert "miss=50" in page.locator("#command").inner_text()
    with page.expect_response("**/decide**"):
        page.fill("form[data-live] input[name=review]", "0.2")
    page.wait_for_selector("#zones:has-text('review')")
    assert page.locator("svg.drawing").first.get_attribute("aria-label")
    page.screenshot(path=ARTIFACTS / "decide.png", full_page=True)
    assert violations(page) == []
    page.get_by_role("link", name="Errors under this rule").click()
    page.wait_for_url("**/explore?**miss=50**")


def test_home_says_what_to_do_and_the_atlas_sorts_without_scripts(open_page):
    page = open_page(java_script_enabled=False)
    page.goto("/")
    assert page.locator("#verdict p").count() >= 4
    assert "credibly sets" in page.locator("#steps").text_content()
    page.get_by_role("link", name="Labels", exact=True).click()
    page.get_by_role("link", name="AP", exact=True).click()
    page.wait_for_url("**sort=AP**")
    column = page.locator("#atlas tbody td:nth-child(4)").all_inner_texts()
    shares = [float(share.removesuffix(" %")) for share in column]
    assert shares == sorted(shares, reverse=True)
    page.fill("input[name=contains]", "TABLE")
    page.locator(".facets button").click()
    assert page.locator("#found").get_attribute("data-found") == "2"
    page.goto("/pairs")
    page.locator("#pairs a").first.click()
    page.wait_for_url("**q=**")
    assert page.locator(".tile").count() > 0
    page.goto("/labels")
    page.screenshot(path=ARTIFACTS / "labels.png", full_page=True)
