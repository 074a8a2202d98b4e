"""The documentation builds strictly (links, anchors, pages outside the menu), names every public
name, shows formulas, and its search box finds pages from files, without a network."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
sys.path.insert(0, str(Path(__file__).parent))
import blocks  # noqa: E402
from provide_browser import browser as find_browser  # noqa: E402

PAGES = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(""))
    for path in (ROOT / "docs").rglob("*.md")
    if path.parent.name != "reference"
)

REFERENCE = sorted(
    page.stem for page in (ROOT / "docs" / "reference").glob("*.md") if page.stem != "index"
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
    assert packages <= set(REFERENCE)


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


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_is_fenced(site, page):
    """An indented block would be shown, and tests/documentation/test_blocks.py would not see it."""
    shown = (site / f"{page}.html").read_text().count('<div class="highlight">')
    assert shown == len(blocks.read(ROOT / "docs" / f"{page}.md"))


QUESTIONS = {
    "temperature": "reference/calibrate",
    "threshold": "sets",
    "joint probabilities": "joint",
    "onnx": "training",
}
"""Words that a user would type, and a page that must be among the first answers."""


@pytest.mark.browser
def test_the_search_box_answers_from_files(site):
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        assert os.environ.get("CI") != "true", "CI must run the browser tests"
        pytest.skip("no browser could be installed on this machine; see tests/serve")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        page = running.new_page()
        page.set_default_timeout(90_000)
        page.goto((site / "index.html").as_uri())
        for words, wanted in QUESTIONS.items():
            box = page.locator("input.md-search__input")
            box.fill("")
            box.press_sequentially(words)
            page.wait_for_selector(f".md-search-result__link[href*='{wanted}.html']")
            links = page.query_selector_all(".md-search-result__link")
            found = [(link.get_attribute("href") or "").partition("?")[0] for link in links]
            first = list(dict.fromkeys(found))[:8]
            assert (site / f"{wanted}.html").as_uri() in first, (words, first)
        running.close()
