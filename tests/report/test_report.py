"""The report: safe, self-contained, true to the numbers, whole or not there."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from reported import verdict

import credibly as cr
from credibly import Predictions, metrics
from credibly.app import report
from credibly.cli import main

EVIL = ["<script>alert(1)</script>", '" onmouseover="x', "a & b", "$\\frac{1}{0}$", "{{ 7*7 }}"]


def predictions(rows=400, bias=0.0, labels=EVIL, seed=0, truth=True):
    rng = np.random.default_rng(seed)
    odds = rng.normal(-0.5, 2, (rows, len(labels)))
    there = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    targets = np.where(rng.random(odds.shape) < 0.05, -1, there)
    targets[0], targets[1] = 0, -1
    return Predictions.from_arrays(
        probabilities=1 / (1 + np.exp(-(odds + bias))),
        targets=targets if truth else None,
        labels=labels,
        metadata={"loss": "spa", "note": EVIL[0]},
    )


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.data = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.data.append(data)


@pytest.fixture(scope="module")
def page():
    return report.render({"ours <b>": predictions(), "theirs": predictions(bias=2.0)}, resamples=20)


def test_names_from_files_stay_text(page):
    parsed = Page(page)
    assert parsed.tags.count("script") == 1  # the page's own
    assert not any(name.startswith("on") for _, name, _ in parsed.attributes)
    assert "b" not in parsed.tags
    assert any(EVIL[0] in piece for piece in parsed.data)
    assert any("{{ 7*7 }}" in piece for piece in parsed.data)


def test_names_cannot_turn_the_text_around_them(page):
    assert "unicode-bidi: isolate" in page
    names = ["a\u202eb", "\u05d3\u2069\u202e", "dog"]
    found = verdict(predictions(rows=3000, bias=1.0, labels=names))
    assert set(found.too_high) == {"ab", "\u2068\u05d3\u2069", "dog"}


def test_the_page_needs_no_network(page):
    for tag, name, value in Page(page).attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#"), (tag, name, value)
    assert "@import" not in page
    assert "url(http" not in page


def test_every_chart_has_a_name_and_a_table(page):
    parsed = Page(page)
    figures = parsed.tags.count("figure")
    assert figures == 6  # of two files: reliability, found and right, labels that go together
    named = [v for tag, name, v in parsed.attributes if (tag, name) == ("svg", "aria-label")]
    assert len([text for text in named if text]) == figures
    assert page.count("The numbers behind this chart") == 4


def test_the_report_says_which_file_is_best_and_folds_its_metadata(page):
    said = re.search(r'id="best">(.*?)</p>', page)[1]
    assert "ours &lt;b&gt; is best in" in said
    folded = page[page.index('id="made"') :]
    assert "<details><summary>" in folded[:200]


def test_identifiers_are_unique(page):
    ids = [value for _, name, value in Page(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_the_table_holds_the_metrics(page):
    one = predictions()
    expected = metrics.summary(one.probabilities, one.targets)["mAP@y"]
    assert f"{100 * expected:.1f} %" in page


def test_the_verdict_is_the_frequency_near_that_level():
    one = predictions(rows=4000)
    near = (one.targets >= 0) & (np.abs(one.probabilities - 0.8) <= 0.05)
    share = one.targets[near].mean()
    assert f"there {100 * share:.0f} % of the time" in verdict(one).sentences[0]


def test_honest_labels_are_not_named_and_biased_ones_are():
    assert verdict(predictions(rows=3000)).too_high == []
    over = verdict(predictions(rows=3000, bias=1.0))
    assert set(over.too_high) == set(EVIL)
    assert over.too_low == []
    assert "Too high: " in " ".join(over.sentences)
    assert set(verdict(predictions(rows=3000, bias=-1.0)).too_low) == set(EVIL)


def test_without_truth_nothing_is_claimed():
    text = report.render({"blind": predictions(truth=False)}, resamples=5)
    assert "has no truth" in text
    assert "<figure" not in text


def test_different_labels_are_refused():
    with pytest.raises(cr.InputError, match="same labels"):
        report.render({"a": predictions(), "b": predictions(labels=["x", "y"])})


def test_no_predictions_are_refused():
    with pytest.raises(cr.InputError, match="at least one"):
        report.render({})


def test_the_command_writes_a_whole_page_or_nothing(tmp_path, capsys):
    source = tmp_path / "run" / "predictions.parquet"
    predictions().write(source)
    out = tmp_path / "report.html"
    assert main(["report", str(source), "--out", str(out), "--resamples", "5"]) == 0
    assert re.search(r"<h3>run</h3>|<title>credibly report: run</title>", out.read_text())
    before = out.read_bytes()
    assert main(["report", str(source), str(tmp_path / "none.parquet"), "--out", str(out)]) == 2
    assert "none.parquet" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_the_same_predictions_give_the_same_page():
    methods = {"one": predictions()}
    assert report.render(methods, resamples=5) == report.render(methods, resamples=5)
