"""What axe-core finds wrong with a page: contrast, names, roles, focus order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from serve_browser import ARTIFACTS

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def script() -> str:
    """Return axe-core as it comes with the package of the tests."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("axe_playwright_python")
    import axe_playwright_python

    path = Path(axe_playwright_python.__file__).parent / "axe.min.js"
    return path.read_text(encoding="utf-8")


def violations(page: Any, rules: Sequence[str] = ()) -> list[str]:
    """Return one line per violation on the page that is open, of all rules or of some."""
    page.evaluate(script())
    kind, values = ("rule", list(rules)) if rules else ("tag", TAGS)
    found = page.evaluate(
        "([type, values]) => axe.run({runOnly: {type, values}})", arg=[kind, values]
    )
    return [
        f"{each['id']}: {node['html'][:150]} ({node['failureSummary'][:200]})"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def look_at(page: Any, name: str) -> None:
    """Check the page that is open on a desktop, on a phone, in the dark and in forced colours."""
    assert violations(page) == []
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
    page.emulate_media(color_scheme="dark")
    assert violations(page, rules=["color-contrast"]) == []
    page.screenshot(path=ARTIFACTS / f"{name}-dark.png", full_page=True)
    page.emulate_media(color_scheme="light", forced_colors="active")
    for drawing in page.locator("svg:has(.track):has(.fill)").all()[:3]:
        parts = (drawing.locator(f".{part}").first for part in ("fill", "track"))
        fill, track = (part.evaluate("e => getComputedStyle(e).fill") for part in parts)
        assert fill != track
    page.screenshot(path=ARTIFACTS / f"{name}-forced.png", full_page=True)
    page.emulate_media(forced_colors="none")
    before = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=ARTIFACTS / f"{name}-phone.png", full_page=True)
    page.set_viewport_size(before)
