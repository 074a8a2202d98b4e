"""Addresses of every page of the web app: a new page goes through the tests of all of them."""

import html
import re

from credibly.app.server import application

FILES = ("/image", "/static/{name}", "/import/file")
ARGUMENTS = {"/label": "?name=fork", "/row": "?id=img%2F000"}
PAGES = [
    route.path + ARGUMENTS.get(route.path, "")
    for module in application.PAGES
    for route in module.router.routes
    if not route.path.startswith(("/api/", *FILES)) and "GET" in route.methods
]

assert PAGES, "every test of all pages would pass without one"

_UNSEEN = re.compile(r"<(script|style|code|pre)\b.*?</\1>", re.S)
_SAID = re.compile(r'(?:aria-label|title|alt|data-tips)="([^"]*)"')
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.])")


def long_numbers(page: str) -> list[str]:
    """Return the numbers that a page shows with more than three significant digits after the point.

    Scripts, styles, code and addresses are not read; the words of charts and images are.
    """
    page = _UNSEEN.sub(" ", page)
    words = html.unescape(" ".join([*_SAID.findall(page), re.sub(r"<[^>]*>", " ", page)]))
    found = []
    for number in _NUMBER.findall(words):
        whole, _, digits = number.partition(".")
        if len(digits.lstrip("0") if whole == "0" else digits) > 3:
            found.append(number)
    return found
