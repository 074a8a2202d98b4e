"""The report in a browser: accessible, on a phone, in forced colours, on paper."""

from __future__ import annotations

import re

import pytest
from serve_accessibility import violations
from serve_browser import ARTIFACTS

from credibly.app import report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def written(shelf, tmp_path_factory):
    return report.write(
        [shelf / "ours.parquet", shelf / "theirs.parquet"],
        tmp_path_factory.mktemp("report") / "r.html",
        resamples=5,
        images=shelf / "images",
        examples=6,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"viewport": {"width": 390, "height": 800}},
        {"color_scheme": "dark"},
        {"forced_colors": "active"},
        {"java_script_enabled": False},
    ],
    ids=["desktop", "phone", "dark", "forced-colours", "no-scripts"],
)
def test_the_report_is_accessible_and_fits(open_page, written, options, request):
    page = open_page(**options)
    page.goto(written.as_uri())
    width = options.get("viewport", {"width": 1100})["width"]
    if options.get("java_script_enabled", True):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
    assert page.locator(".examples img").count() == 12
    assert page.locator("figure svg").count() == 6
    name = request.node.callspec.id
    page.screenshot(path=ARTIFACTS / f"report-{name}.png", full_page=True)


def test_printed_every_table_is_open(open_page, written):
    page = open_page()
    page.goto(written.as_uri())
    closed = page.locator("details:not([open])").count()
    assert closed > 3
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    hidden = page.evaluate(
        "[...document.querySelectorAll('table')].filter((each) => !each.offsetHeight).length"
    )
    assert hidden == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() == closed


OVERLAPPING = """() => {
  const parts = [...document.querySelectorAll("main section, main .card, table, figure, .tile")];
  const areas = parts.map((each) => each.getBoundingClientRect());
  const found = [];
  for (let i = 0; i < parts.length; i++) for (let j = i + 1; j < parts.length; j++) {
    if (parts[i].contains(parts[j]) || parts[j].contains(parts[i])) continue;
    const [a, b] = [areas[i], areas[j]];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && tall > 1)
      found.push([parts[i].outerHTML.slice(0, 80), parts[j].outerHTML.slice(0, 80)]);
  }
  return found;
}"""


def test_on_paper_nothing_lies_over_anything_and_no_page_is_nearly_empty(open_page, written):
    page = open_page(viewport={"width": 718, "height": 1000})  # A4 with margins
    page.goto(written.as_uri())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(OVERLAPPING) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    height = page.evaluate("document.documentElement.scrollHeight")
    printed = page.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "1cm"))
    (ARTIFACTS / "report.pdf").write_bytes(printed)
    pages = len(re.findall(rb"/Type ?/Page\b", printed))
    assert pages <= height / 1045 * 1.25 + 1


def test_the_colours_of_the_report_are_chosen(open_page, written):
    page = open_page()
    page.goto(written.as_uri())
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert violations(page) == []


def test_columns_are_sorted_by_keyboard(open_page, written):
    page = open_page()
    page.goto(written.as_uri())
    button = page.locator("table.sortable th button").nth(3)
    button.focus()
    page.keyboard.press("Enter")
    values = page.locator("table.sortable").first.locator("tbody td:nth-child(4)").all_inner_texts()
    assert [float(each) for each in values] == sorted(map(float, values), reverse=True)
