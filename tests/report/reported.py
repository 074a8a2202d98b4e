"""What the report and the app say of predictions, read from their pages."""

from __future__ import annotations

import re
from html import unescape
from types import SimpleNamespace

import numpy as np
from starlette.testclient import TestClient

from credibly import Predictions
from credibly.app import report
from credibly.app.server import create_app


def predictions(p, y, labels=None, **more):
    labels = labels or [f"l{t}" for t in range(np.shape(p)[1])]
    return Predictions.from_arrays(probabilities=p, targets=y, labels=labels, **more)


def verdict(one):
    """Return the grade of predictions, the sentences, and the labels that are too high or low."""
    page = report.render({"one": one}, resamples=2)
    card = page.partition('<div class="card third verdict">')[2].partition("<dl")[0]
    grade = re.search(r'class="badge (\w+)"', card)[1]
    sentences = re.findall(r"<p(?: class=\"headline\")?>(?!<span)(.*?)</p>", card, re.S)
    words = [unescape(each).replace("\u00a0", " ") for each in sentences]
    named = [
        re.search(rf"{flag}: (.*?)\.(?: Too|$)", words[-1], re.IGNORECASE)
        for flag in ("too high", "too low")
    ]
    high, low = ([] if found is None else found[1].split(", ") for found in named)
    return SimpleNamespace(grade=grade, sentences=words, too_high=high, too_low=low)


def served(path):
    """Return a client of the app that serves a file."""
    return TestClient(create_app([path]), base_url="http://localhost")


def atlas(one, folder):
    """Return every label of predictions as the app lists them, in their order."""
    one.write(folder / "atlas.parquet")
    rows = served(folder / "atlas.parquet").get("/api/atlas").json()["labels"]
    return sorted(rows, key=lambda row: one.labels.index(row["label"]))


def compared(methods, resamples):
    """Return the metrics of the report by file and name: estimate, interval, whether best."""
    page = report.render(methods, resamples=resamples)
    table = page.partition('<h2 id="numbers">Metrics</h2>')[2].partition("</table>")[0]
    columns = re.findall(r"<abbr[^>]*>([^<]+)</abbr>", table)
    found = {}
    for name, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table, re.S):
        each = re.findall(
            r'<span( class="best")?>([\d.]+)(?: %)?</span>'
            r"<small>([\d.]+) – ([\d.]+)(?: %)?</small>",
            cells,
        )
        found[name] = {
            column: SimpleNamespace(best=bool(best), estimate=float(value), low=low, high=high)
            for column, (best, value, low, high) in zip(columns, each, strict=True)
        }
    return found
