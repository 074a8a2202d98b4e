"""The documentation builds strictly (links, anchors, pages outside the menu), names every public
name, shows formulas, and its search box finds pages from files, without a network."""

from __future__ import annotations

import html.parser
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "app"))
sys.path.insert(0, str(Path(__file__).parent))
import blocks  # noqa: E402
from provide_browser import browser as find_browser  # noqa: E402
from serve_accessibility import violations  # noqa: E402

from credibly.cli import COMMANDS  # noqa: E402

PAGES = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(""))
    for path in (ROOT / "docs").rglob("*.md")
    if "::: credibly" not in path.read_text(encoding="utf-8")
)

REFERENCE = sorted(
    page.stem
    for page in (ROOT / "docs" / "reference").glob("*.md")
    if "::: credibly" in page.read_text(encoding="utf-8")
)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "-q", "-d", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": "", "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    return folder


def _public_names(module: ModuleType) -> list[str]:
    declared = vars(module).get("__all__")
    if declared is not None:
        return list(declared)
    own = (n for n, value in vars(module).items() if isinstance(value, (type, type(_public_names))))
    return [
        n for n in own if not n.startswith("_") and vars(module)[n].__module__ == module.__name__
    ]


@pytest.mark.parametrize("package", REFERENCE)
def test_the_reference_has_every_public_name(site, package):
    text = (site / "reference" / f"{package}.html").read_text()
    shown = set(re.findall(r'id="credibly\.([\w.]+)"', text))
    # `credibly.losses.audit` is a module as well as a function; the function has its own anchor.
    wanted = _public_names(importlib.import_module(f"credibly.{package}"))
    missing = [
        name
        for name in wanted
        if not shown & {f"{package}.{name}", f"{package}.{name}.{name}"}
        and f"credibly.{package}.{name}" not in re.findall(r"<h2[^>]*>([\w.]+)", text)
    ]
    assert wanted
    assert missing == []


def test_every_public_package_is_in_the_reference():
    credibly = importlib.import_module("credibly")
    packages = {n for n in credibly.__all__ if isinstance(getattr(credibly, n), ModuleType)}
    assert packages <= {part for page in REFERENCE for part in (page, page.partition(".")[0])}


def test_formulas_are_drawn_by_the_browser(site):
    pages = [page.read_text() for page in site.rglob("*.html")]
    assert sum(page.count("<math") for page in pages) > 100
    assert not [page for page in pages if 'class="arithmatex"' in page]


def test_no_page_asks_another_host_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(
            r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', text
        )
        assert loaded == [], page


class Links(html.parser.HTMLParser):
    """The ids of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.links += [values[name] for name in ("href", "src") if name in values]


def test_every_internal_link_and_anchor_leads_somewhere(site):
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html") if path.stem != "404"}
    broken, seen = [], 0
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            seen += 1
            anchor = unquote(address.fragment)
            there = target.exists() and (
                not anchor or target not in pages or anchor in pages[target].ids
            )
            if not there and not anchor.startswith("__"):
                broken.append((str(path.relative_to(site)), link))
    assert seen > 3000
    assert broken == []


MARKDOWN = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_files_beside_the_documentation_lead_somewhere(name):
    links = MARKDOWN.findall((ROOT / name).read_text())
    local = [link for link in links if not urlsplit(link).scheme]
    assert [link for link in local if not (ROOT / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_is_fenced(site, page):
    """An indented block would be shown, and tests/documentation/test_blocks.py would not see it."""
    shown = (site / f"{page}.html").read_text().count('<div class="highlight">')
    source = ROOT / "docs" / f"{page}.md"
    found = blocks.read(source)
    generated = len(COMMANDS) if "<!-- commands -->" in source.read_text(encoding="utf-8") else 0
    assert shown == len(found) + sum(block.prints is not None for block in found) + generated


TASKS = tomllib.loads((Path(__file__).parent / "tasks.toml").read_text(encoding="utf-8"))["tasks"]

FIRST = 5
RESULTS = ".md-search-result__item > .md-search-result__link"
STATE = ".md-search-result__meta"
SECONDS = 60
FOUND = """([results, target, first]) => {
    const pages = [...document.querySelectorAll(results)].map(link => link.href.split(/[?#]/)[0]);
    return [...new Set(pages)].slice(0, first).includes(target);
}"""


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        assert os.environ.get("CI") != "true", "CI must run the browser tests"
        pytest.skip("no browser could be installed on this machine; see tests/app")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        yield running
        running.close()


@pytest.mark.browser
def test_the_search_box_finds_the_page_of_each_common_task(site, chromium):
    from playwright.sync_api import TimeoutError

    assert len(TASKS) == 25
    page = chromium.new_page()
    page.set_default_timeout(300_000)
    warnings: list[str] = []  # the search prints its own errors there, and then finds nothing
    page.on("console", lambda message: warnings.append(message.text))
    page.goto((site / "index.html").as_uri())
    box = page.locator("input.md-search__input")
    box.click()
    missed = []
    for words, wanted in TASKS:
        # "Initializing" becomes "Type to start" when the index is read; a key starts the search.
        page.wait_for_function(f"/^Type/.test(document.querySelector('{STATE}').innerText.trim())")
        box.fill(words[:-1])
        box.press(words[-1])
        target = (site / f"{wanted}.html").as_uri()
        try:  # answers to the words without their last letter may be shown first
            page.wait_for_function(FOUND, arg=[RESULTS, target, FIRST], timeout=SECONDS * 1000)
        except TimeoutError:
            missed.append((words, page.inner_text(STATE)))
        box.fill("x")
        box.press("Backspace")
    page.close()
    assert missed == []
    assert [text for text in warnings if "Invalid query" in text] == []


LOOKED_AT = (*PAGES, "notebooks/decide")
"""Every written page, and one with the outputs of cells."""


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_wrong_with_the_pages(site, chromium, width, scheme):
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = {}
    for name in LOOKED_AT:
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector("[data-md-component=search] input")
        wrong = violations(page)
        if wrong:
            found[name] = wrong[:3]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.close()
    assert found == {}
