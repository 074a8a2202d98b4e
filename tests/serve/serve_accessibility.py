"""What axe-core finds wrong with a page: contrast, names, roles, focus order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

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
