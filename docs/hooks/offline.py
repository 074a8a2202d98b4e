"""Keep pages free of foreign hosts: formulas become MathML, and the search needs no loader."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
LOADER = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')


def on_page_content(content: str, **_: Any) -> str:
    """Replace what the extension ``arithmatex`` marks as LaTeX; browsers draw MathML themselves."""
    content = BLOCK.sub(lambda found: _mathml(found, "block"), content)
    return INLINE.sub(lambda found: _mathml(found, "inline"), content)


def on_post_page(output: str, config: Any, page: Any, **_: Any) -> str:
    """Name the search for screen readers; put our script in the place of the one from elsewhere."""
    up = "../" * page.file.dest_uri.count("/")
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return LOADER.sub(f'<script src="{up}search-from-files.js"></script>', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same to the page for addresses that do not exist."""
    return LOADER.sub('<script src="/search-from-files.js"></script>', output_content)


def _mathml(found: re.Match[str], display: str) -> str:
    return convert(html.unescape(found[1]), display=display)
