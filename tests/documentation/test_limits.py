"""The documentation stays small: words, pages, paragraphs, entries of the menu."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
GENERATED = ("::: credibly", "python -m benchmarks.preset_page")
WRITTEN = {
    page: text.partition("{#as-printed}")[0]
    for page, text in PAGES.items()
    if not any(g in text for g in GENERATED)
}
"""Every page but those generated from docstrings and presets, without what the papers print."""

IN_ALL, ON_A_PAGE, IN_A_PARAGRAPH, IN_THE_MENU = 40_000, 3_000, 100, 25
ON_PAGES_OF = {"papers": 2_500, "benchmarks": 1_500}


def words(text: str) -> int:
    """The number of words, without the bars of tables and the dashes of lists."""
    return len(re.findall(r"\S*\w\S*", text))


def paragraphs(text: str) -> list[str]:
    """The paragraphs and items of lists of a page, without front matter, code, tables and HTML."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    return [part for part in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text) if part.strip()]


def entries(menu: list) -> list[str]:
    """The pages of a menu, at any level."""
    found = []
    for entry in menu:
        (target,) = entry.values()
        found += entries(target) if isinstance(target, list) else [target]
    return found


def test_all_pages_together_have_at_most_40000_words():
    assert sum(map(words, WRITTEN.values())) <= IN_ALL


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_is_short(page):
    limit = ON_PAGES_OF.get(page.partition("/")[0], ON_A_PAGE)
    assert words(WRITTEN[page]) <= limit


@pytest.mark.parametrize("page", WRITTEN)
def test_a_paragraph_is_short(page):
    long = [part[:60] for part in paragraphs(WRITTEN[page]) if words(part) > IN_A_PARAGRAPH]
    assert long == []


def test_paragraphs_are_found_and_code_is_not():
    text = "---\na: b\n---\n# T\n\nOne.\nStill one.\n\n- a\n- b\n\n```text\nx\n```\n\n| c |\n"
    assert [part.split()[0] for part in paragraphs(text)] == ["#", "One.", "-", "-"]


def test_the_menu_has_at_most_25_entries_and_leads_to_every_kind_of_page():
    class Loader(yaml.SafeLoader):
        """YAML of mkdocs, whose tags for Python names are not needed here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    menu = entries(settings["nav"])
    assert len(menu) <= IN_THE_MENU
    assert {page for page in menu if page not in PAGES} == set()
    kinds = {"start.md", "tutorials", "guide", "papers", "benchmarks", "reference"}
    assert kinds <= {page.partition("/")[0] for page in menu}
