"""The example in the search box is a query that works, whatever the labels are called."""

from __future__ import annotations

import html
import re

import httpx
import numpy as np
import pytest
from serve_browser import listening

from credibly import Predictions
from credibly.app.server import create_app
from credibly.retrieve import parse

NAMES = [
    ["Brown Creeper", "Pacific Wren", "fork"],
    ['say "hi"', "<b>bold</b>", "a\\b"],
    ["one label alone"],
]


def _every_label(names, path):
    values = np.random.default_rng(0).random((20, len(names)))
    Predictions.from_arrays(probabilities=values, labels=names).write(path)


def _top_labels(names, path):
    top = np.tile(np.arange(len(names)), (20, 1))
    values = np.sort(np.random.default_rng(0).random(top.shape), axis=1)[:, ::-1]
    Predictions.from_arrays(top=top, probabilities=values.astype(np.float32), labels=names).write(
        path
    )


@pytest.mark.parametrize("write", [_every_label, _top_labels])
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_the_example_of_the_search_box_names_labels_of_the_file(write, names, tmp_path):
    write(names, tmp_path / "rows.parquet")
    app = create_app([tmp_path / "rows.parquet"])
    with listening(app) as where, httpx.Client(base_url=where, timeout=60) as client:
        home = client.get("/").text
        example = html.unescape(re.search(r'placeholder="([^"]*)"', home)[1])
        assert parse(example).check(names).wanted == (names[0],)
        assert client.get("/api/search", params={"q": example}).status_code == 200
