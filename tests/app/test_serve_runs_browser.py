"""The comparison of runs in a browser: live, without scripts, on a phone, in forced colours."""

from __future__ import annotations

import threading
import time

import pytest
import uvicorn
from serve_accessibility import violations
from serve_browser import ARTIFACTS
from serve_runs import add_epochs, write_predictions, write_run

from credibly.app.server import create_app

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "runs"
    write_run(folder / "good", "bce", 5, noise=0.1)
    write_run(folder / "bad", "spa", 5, noise=1.5, seed=1)
    write_run(folder / "twin", "asl", 4, noise=0.12, seed=2)
    write_run(folder / "training", "bce", 2)
    return folder


@pytest.fixture(scope="module")
def address(runs):
    """Where a server of a folder of runs listens."""
    config = uvicorn.Config(create_app([runs]), port=0, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def complete(page, path="/compare"):
    """Open the comparison once all files are measured."""
    deadline = time.monotonic() + 60
    page.goto(path)
    while page.locator("#live > [role=status]").count():
        assert time.monotonic() < deadline
        page.goto(path)


def test_the_comparison_works_without_scripts(open_page):
    page = open_page(java_script_enabled=False)
    complete(page)
    assert page.locator("#runs tbody tr").count() == 4
    assert page.locator("#matrix tbody tr").count() == 3
    assert page.locator("svg.lines polyline").count() >= 3 + 4  # reliability, then curves
    page.select_option("select[name=by]", "ACE")
    page.locator("main").get_by_role("button", name="Show").click()
    page.wait_for_url("**by=ACE**")
    page.locator("#against a", has_text="where they disagree").first.click()
    page.wait_for_url("**/explore?**kind=disagreement**")
    assert page.locator(".tile").count() > 0
    complete(page)
    page.locator("#runs tbody a", has_text="good").click()
    page.wait_for_url("**file=**")
    assert page.locator("#verdict p").count() >= 4


@pytest.mark.parametrize(
    "options",
    [{}, {"viewport": {"width": 390, "height": 800}}, {"color_scheme": "dark"}],
    ids=["desktop", "phone", "dark"],
)
def test_the_comparison_is_accessible_and_fits(open_page, options):
    page = open_page(**options)
    complete(page)
    assert violations(page) == []
    width = options.get("viewport", {"width": 1100})["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    name = "phone" if width == 390 else options.get("color_scheme", "light")
    page.screenshot(path=ARTIFACTS / f"runs-{name}.png", full_page=True)


def test_lines_are_visible_and_told_apart_in_forced_colours(open_page):
    page = open_page(forced_colors="active")
    complete(page)
    strokes, dashes = (
        page.locator("svg.lines")
        .first.locator(".line")
        .evaluate_all(f"all => all.map((each) => getComputedStyle(each).{what})")
        for what in ("stroke", "strokeDasharray")
    )
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper not in strokes
    assert len(set(dashes)) == len(dashes)


def test_a_run_that_goes_on_is_followed_without_a_reload(open_page, runs):
    page = open_page()
    complete(page)
    page.evaluate("window.untouched = true")
    row = page.locator("#runs tbody tr", has_text="training")
    assert "epoch 2 of 5" in row.inner_text()
    before = page.locator("#curves ~ .charts polyline").last.get_attribute("points")
    add_epochs(runs / "training", 4)
    page.wait_for_selector("#runs:has-text('epoch 4 of 5')")
    assert page.locator("#curves ~ .charts polyline").last.get_attribute("points") != before
    write_predictions(runs / "training" / "predictions.parquet", noise=0.3, seed=9)
    (runs / "training" / "calibration.json").write_text("{}")
    page.wait_for_selector("#runs tbody a:has-text('training')")
    page.wait_for_selector("#matrix tbody tr:nth-child(4)")
    assert page.evaluate("window.untouched") is True


def test_pairs_are_chosen_by_keyboard_alone(open_page):
    page = open_page()
    complete(page)
    link = page.locator("#matrix tbody a").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**first=**second=**")
    page.locator("select[name=first]").focus()
    with page.expect_navigation():
        page.keyboard.press("ArrowDown")
    assert page.locator("#overlaid li").count() == 3
