"""What a notebook shows: escaped tables of bounded size, plots that draw, no wall of text."""

from __future__ import annotations

import html.parser
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import credibly as cr
from credibly.metrics import reliability, retrieval_map
from credibly.metrics.intervals import summary_draws
from credibly.notebook import COLUMNS, ROWS
from credibly.train import Run, recipe
from credibly.workflows.comparison import Comparison

HOSTILE = '<script>alert("x")</script>'
RNG = np.random.default_rng(0)
P = RNG.random((300, 40)).astype(np.float32)
Y = (RNG.random((300, 40)) < P).astype(np.int8)
Y[:3, :5] = -1
LABELS = [HOSTILE, *(f"label {i}" for i in range(39))]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return one object of every kind that a notebook may show."""
    folder = tmp_path_factory.mktemp("shown")
    predictions = cr.Predictions.from_arrays(probabilities=P, targets=Y, labels=LABELS)
    predictions.write(folder / "p.parquet")
    figure = {"mean": 0.5, "low": 0.4, "high": 0.6}
    figures = dict.fromkeys(("mAP@y", "ACE", "NLL"), figure)
    small = P[:, :3].astype(float)
    return {
        "predictions": predictions,
        "audit": cr.losses.audit(cr.losses.Focal()),
        "answer": cr.retrieve.Index(P, LABELS, targets=Y).search('+"label 1" -"label 2"'),
        "evaluation": cr.evaluate(folder / "p.parquet"),
        "calibrated scores": cr.calibrate_scores(np.log(P / (1 - P)), Y, "bce", labels=LABELS),
        "sets": cr.write_sets(folder / "p.parquet", cr.decide.AverageSize(2), folder / "s.parquet"),
        "comparison": Comparison(
            HOSTILE, "", 10, 2.0, 1, "rows", {"bce": figures, HOSTILE: figures}, {}
        ),
        "reliability": reliability(P, Y),
        "reliability per label": reliability(P, Y, per_label=True),
        "draws": summary_draws(small, Y[:, :3]),
        "pipeline": cr.Pipeline("asl", cr.calibrate.Affine().fit(P, Y), cr.decide.TopK(2)),
        "issues": cr.review.label_issues(predictions),
        "retrieval": retrieval_map(P[:, :4], np.abs(Y[:, :4]), max_conditions=2),
        "run": Run(
            folder, recipe(), 0, {"labels": LABELS}, None, cr.Pipeline("bce"), {"NLL": 0.25}
        ),
    }


NAMES = [
    "predictions", "audit", "answer", "evaluation", "calibrated scores", "sets", "comparison",
    "reliability", "reliability per label", "draws", "retrieval", "run", "pipeline", "issues",
]  # fmt: skip
WITHOUT_HTML = {"draws"}


TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "div", "style", "span"}
TAGS |= {"dl", "dt", "dd", "ul", "ol", "li", "strong"}
DRAWN = {"svg", "path", "rect", "circle", "polygon", "polyline", "text", "title", "g"}
VOID = {"img", "br"}


class Parser(html.parser.HTMLParser):
    """Reads a card; ``tables`` holds the number of cells of every row of each table."""

    def __init__(self):
        super().__init__()
        self.open, self.tables, self.images = [], [], 0

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS | DRAWN | VOID
        assert not any(name.startswith("on") for name, _ in attributes)
        self.images += tag == "img"
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("td", "th"):
            self.tables[-1][-1] += 1

    def handle_startendtag(self, tag, attributes):
        assert tag in DRAWN

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT_HTML))
def test_html_is_whole_escaped_and_small(shown, name):
    parser = Parser()
    text = shown[name]._repr_html_()
    parser.feed(text)
    assert parser.open == []
    assert "<script" not in text
    assert len(text) < 60_000
    for cells in parser.tables:
        assert len(cells) <= ROWS + 1
        assert max(cells) <= COLUMNS + 1
        assert len(set(cells)) == 1


@pytest.mark.parametrize(
    ("name", "says", "drawing"),
    [
        ("predictions", "When it says 80 %", 'aria-label="Reliability'),
        ("calibrated scores", "changes NLL by", 'aria-label="Reliability of each stage'),
        ("evaluation", "300 rows, 40 labels", 'class="numbers"'),
        ("pipeline", "Affine", 'class="flow"'),
        ("answer", "hits expected among 300 rows", ""),
        ("issues", "probably wrong.", ""),
    ],
)
def test_results_are_shown_as_the_cards_of_the_app(shown, name, says, drawing):
    text = shown[name]._repr_html_()
    assert says in text
    assert drawing in text


def test_an_answer_shows_the_images_that_its_rows_name(tmp_path):
    Image.new("RGB", (400, 300), (200, 0, 0)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    found = cr.retrieve.Index(P, LABELS).search('+"label 1"')
    names = [tmp_path / f"{name}.png" for name in "abc"]
    hits = [replace(hit, path=str(name)) for hit, name in zip(found.hits, names, strict=False)]
    parser = Parser()
    text = replace(found, hits=hits)._repr_html_()
    parser.feed(text)
    assert parser.images == 1
    assert text.count("no image") == 2


def test_an_answer_finds_the_images_of_its_rows_in_a_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("photos/a.jpg", "photos/b", "outside.png"):
        Image.new("RGB", (40, 30), (200, 0, 0)).save(tmp_path / name, "PNG")
    ids = ["a", "b", "../outside", "c", *range(4, len(P))]
    found = cr.retrieve.Index(P, LABELS, list(map(str, ids))).search('+"label 1"', top=len(P))
    assert "<img" not in found._repr_html_()
    shown = found.with_images(tmp_path / "photos")
    paths = {hit.id: hit.path for hit in shown.hits if hit.path is not None}
    assert paths == {"a": str(tmp_path / "photos/a.jpg")}
    first = replace(shown, hits=sorted(shown.hits, key=lambda hit: hit.path is None))
    assert f"{len(P) - ROWS} more rows." in first._repr_html_()
    with pytest.raises(cr.InputError, match="images must be in a folder"):
        found.with_images(tmp_path / "none")


@pytest.mark.parametrize("name", NAMES)
def test_no_repr_is_a_wall_of_text(shown, name):
    text = repr(shown[name])
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 300
    assert "array(" not in text


def test_predictions_go_to_pandas_and_arrow_and_come_back(shown):
    predictions = shown["predictions"]
    frame = predictions.to_pandas()
    assert frame.index.tolist() == predictions.ids.tolist()
    np.testing.assert_array_equal(frame[f"p:{HOSTILE}"], P[:, 0])
    assert frame["y:label 0"].isna().sum() == 3
    table = predictions.to_arrow()
    assert table.column_names[:2] == ["id", f"p:{HOSTILE}"]
    assert table["y:label 0"].null_count == 3


def test_answers_and_evaluations_go_to_pandas(shown):
    answer = shown["answer"]
    frame = answer.to_pandas()
    assert frame["id"].tolist() == answer.ids
    assert frame["probability"].tolist() == answer.probabilities
    assert shown["evaluation"].to_pandas().index.tolist() == LABELS


def test_a_plot_draws_itself_where_it_is_the_last_value_of_a_cell():
    ax = cr.plot.reliability(P, Y)
    drawing = ax._repr_html_()
    assert drawing.startswith("<svg")
    assert drawing.rstrip().endswith("</svg>")
