"""What a person does, in a real browser. Screenshots are kept in ``artifacts/``."""

from __future__ import annotations

import numpy as np
import pytest
from serve_browser import ARTIFACTS, wait_until
from serve_pages import PAGES

from credibly import Predictions, metrics

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ours(shelf):
    return Predictions.read(shelf / "ours.parquet")


def best(ours, wanted, unwanted):
    joint = np.ones(len(ours))
    for name in wanted:
        joint *= ours.probabilities[:, ours.labels.index(name)].astype(float)
    for name in unwanted:
        joint *= 1 - ours.probabilities[:, ours.labels.index(name)].astype(float)
    return str(ours.ids[joint.argmax()]), joint.sum()


def test_a_query_shows_the_best_row_first_and_the_expected_hits(page, ours):
    page.goto("/")
    page.fill("#q", "+fork -knife")
    page.press("#q", "Enter")
    page.wait_for_url("**q=**")
    first, expected = best(ours, ["fork"], ["knife"])
    assert page.locator(".tile").first.get_attribute("data-id") == first
    assert float(page.locator("[data-expected]").get_attribute("data-expected")) == pytest.approx(
        expected
    )
    assert page.locator(".chip.want").inner_text().startswith("+ fork")
    assert page.locator(".chip.not").inner_text().startswith("- knife")
    page.screenshot(path=ARTIFACTS / "search.png")


def test_a_chip_turns_around_and_goes_away(page, ours):
    page.goto("/?q=%2Bfork+-knife")
    page.locator(".chip.want button").first.click()
    page.wait_for_url("**q=-fork**")
    assert page.locator(".chip.not").count() == 2
    page.locator(".chip.not button").nth(1).click()
    page.wait_for_url("**q=-knife**")
    assert page.locator("#chips .chip").count() == 1


def test_a_query_stands_in_the_box_once_as_tokens_or_as_text(page):
    page.goto("/?q=%2Bfork+-%22dining+table%22")
    assert page.input_value("#q") == ""
    assert page.locator("#chips .chip").count() == 2
    page.get_by_role("button", name="as text").click()
    assert page.input_value("#q") == '+fork -"dining table"'
    assert page.locator("#chips .chip").count() == 0
    page.fill("#q", "+fork (apple | knife)")
    page.press("#q", "Enter")
    page.wait_for_selector(".tile, .problem[role=alert]")
    page.goto("/?q=fork+%26+!knife")  # boolean: stays text
    assert page.input_value("#q") == "fork & !knife"
    assert page.locator("#chips .chip").count() == 0


def test_an_empty_query_shows_the_rows_of_the_file(page):
    page.goto("/?q=%2Bfork")
    page.wait_for_selector(".tile")
    page.get_by_role("button", name="remove: fork").click()
    page.wait_for_url(lambda address: "q=" not in address)
    assert page.locator("#tiles .tile").first.get_attribute("data-id") == "img/000"


def test_the_last_token_can_be_typed_again(page):
    page.goto("/?q=%2Bfork+-knife")
    page.focus("#q")
    page.keyboard.press("Backspace")
    assert page.input_value("#q") == "-knife"
    page.keyboard.press("Enter")
    page.wait_for_url("**q=%2Bfork+-knife**")


def test_names_with_markup_stay_text(page):
    page.goto("/?q=" + "%22%3Cb%3Ebold%3C%2Fb%3E%22")
    assert page.locator("b").count() == 0
    page.wait_for_selector(".tile")
    page.fill("#q", "<b>b")
    page.wait_for_selector("#suggestions li")
    assert page.locator("#suggestions b").count() == 0


def test_a_mistake_in_the_query_is_pointed_at(page):
    page.goto("/?q=%2Bfrok")
    assert "fork" in page.locator(".problem[role=alert]").inner_text()


def test_typed_names_are_found_whatever_their_case_and_accents(page, ours):
    page.goto("/?q=f%C3%B6rk+%26+!KNIFE")
    first, _ = best(ours, ["fork"], ["knife"])
    assert page.locator(".tile").first.get_attribute("data-id") == first
    assert page.input_value("#q") == "förk & !KNIFE"
    page.goto("/?q=%2Bf%C3%B6rk+-kn%C3%AFves")
    lines = page.locator(".problem[role=alert]").inner_text().splitlines()
    assert "Did you mean 'knife'" in lines[0]
    assert lines[2].index("^") == lines[1].index("knïves")


def test_the_slider_changes_the_sets_and_the_address(page):
    page.goto("/decide?by=size&average_size=1")
    before = page.locator("#mean-size").inner_text()
    with page.expect_response("**/decide**"):
        page.locator("#size").evaluate(
            "s => { s.value = 3; s.dispatchEvent(new Event('input', {bubbles: true})); }"
        )
    wait_until(
        page, "before => document.getElementById('mean-size').textContent !== before", before
    )
    assert float(page.locator("#mean-size").inner_text()) == pytest.approx(3, abs=0.01)
    assert "average_size=3" in page.url
    assert page.locator("#histogram tbody tr").count() > 2
    page.screenshot(path=ARTIFACTS / "budget.png")


def test_the_label_page_draws_the_bins_of_the_metric(page, ours):
    page.goto("/label?name=apple")
    t = ours.labels.index("apple")
    found = metrics.reliability(ours.probabilities[:, [t]], ours.targets[:, [t]])
    rows = page.locator("#bins tbody tr")
    seen = found.counts > 0
    assert rows.count() == seen.sum()
    shares = [float(rows.nth(i).get_attribute("data-frequency")) for i in range(rows.count())]
    np.testing.assert_allclose(shares, found.frequency[seen], rtol=1e-5)
    assert page.locator(".card svg.drawing").count() == 2  # reliability; found and right
    page.screenshot(path=ARTIFACTS / "label.png", full_page=True)


def test_before_and_after_calibration_switch(page):
    page.goto("/?q=%2Bfork")
    after = page.locator("[data-expected]").get_attribute("data-expected")
    page.get_by_role("radio", name="before").click()
    page.wait_for_url("**raw=true**")
    assert page.locator("[data-expected]").get_attribute("data-expected") != after


def test_two_files_side_by_side(page):
    page.goto("/compare?q=%2Bfork")
    assert page.locator(".verdict").count() == 2
    assert page.locator("#answers section").count() == 2
    assert page.locator("#runs tbody th a").all_inner_texts() == ["ours", "theirs"]
    assert page.locator("#overlaid li").count() == 7
    page.screenshot(path=ARTIFACTS / "compare.png", full_page=True)


@pytest.mark.parametrize("path", [*PAGES, "/?q=%2Bfork"])
def test_pages_fit_a_phone(chromium, address, path):
    context = chromium.new_context(base_url=address, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_the_report_opens_and_sorts(chromium, shelf, tmp_path):
    from credibly.app import report

    out = report.write(
        [shelf / "ours.parquet", shelf / "theirs.parquet"], tmp_path / "r.html", resamples=5
    )
    for width, name in ((1100, "report"), (390, "report-phone")):
        context = chromium.new_context(viewport={"width": width, "height": 900})
        page = context.new_page()
        errors = []
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        page.goto(out.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("tbody th").first.bounding_box()["width"] > 80  # names stay words
        page.locator("table.sortable th button").nth(1).click()
        column = (
            page.locator("table.sortable")
            .first.locator("tbody tr td:nth-child(2)")
            .all_inner_texts()
        )
        counts = [int(count.replace(",", "")) for count in column]
        assert counts == sorted(counts, reverse=True)
        assert errors == []
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
        context.close()
