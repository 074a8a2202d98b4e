"""The worst rows inside a report: which they are, how large they may be, what is left out."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from credibly import Predictions, plot
from credibly.app import report
from credibly.cli import main


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Predictions of 60 rows, an image for every second one, one of them damaged."""
    folder = tmp_path_factory.mktemp("examples")
    rng = np.random.default_rng(0)
    p = rng.random((60, 3))
    y = (rng.random(p.shape) < 0.5).astype(np.int8)
    y[:5] = -1
    Predictions.from_arrays(
        probabilities=p, targets=y, labels=["a", "<b>", "c"], ids=[f"r{i}" for i in range(60)]
    ).write(folder / "p.parquet")
    (folder / "images").mkdir()
    for i in range(0, 60, 2):
        noise = rng.integers(0, 255, (300, 400, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "images" / f"r{i}.png")
    (folder / "images" / "r6.png").write_bytes(b"\x89PNG damaged")
    return folder


def cards(page):
    return re.findall(r"<li class=\"tile\">(?:(?!</li>).)*row (r\d+)</small></p></li>", page, re.S)


def kinds(page):
    return re.findall(r"</strong> (missed|false alarm), model says ([\d.]+)", page)


def test_the_worst_rows_come_first_in_turns_and_each_row_once(shelf, tmp_path):
    out = report.write([shelf / "p.parquet"], tmp_path / "r.html", resamples=5, examples=10,
                       images=shelf / "images")  # fmt: skip
    page = out.read_text()
    shown, listed = cards(page), kinds(page)
    assert len(shown) == len(set(shown)) == 10
    one = Predictions.read(shelf / "p.parquet")
    ids = list(map(str, one.ids))
    assert all(int(id[1:]) % 2 == 0 for id in shown)
    assert "r6" not in shown  # does not decode
    p, y = one.probabilities, one.targets
    wrong = {
        "missed": np.where((y == 1) & (p < 0.5), 1 - p, 0),
        "false alarm": np.where((y == 0) & (p >= 0.5), p, 0),
    }
    assert [kind for kind, _ in listed] == ["missed", "false alarm"] * 5
    there = [i for i, id in enumerate(ids) if i % 2 == 0 and id != "r6"]
    assert shown[0] == ids[max(there, key=lambda i: wrong["missed"][i].max())]
    rest = [i for i in there if ids[i] != shown[0]]
    assert shown[1] == ids[max(rest, key=lambda i: wrong["false alarm"][i].max())]
    assert not set(shown) & {f"r{i}" for i in range(5)}  # their truth is not known


def test_images_are_small_copies_inside_the_page(shelf, tmp_path):
    out = report.write([shelf / "p.parquet"], tmp_path / "r.html", resamples=5, examples=4,
                       images=shelf / "images")  # fmt: skip
    found = re.findall(r'src="data:image/(\w+);base64,([^"]+)" width="(\d+)" height="(\d+)"',
                       out.read_text())  # fmt: skip
    assert len(found) == 4
    for kind, text, width, height in found:
        image = Image.open(io.BytesIO(base64.b64decode(text)))
        assert image.format.lower() == kind
        assert image.size == (int(width), int(height))
        assert max(image.size) == report.SIDE


def test_images_of_a_report_have_a_bound_and_the_page_says_so(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MOST_BYTES", 40_000)
    out = report.write([shelf / "p.parquet"], tmp_path / "r.html", resamples=5, examples=50,
                       images=shelf / "images")  # fmt: skip
    page = out.read_text()
    images = re.findall(r'src="(data:image[^"]+)"', page)
    assert 0 < sum(map(len, images)) <= 40_000
    assert "too large" in page


def test_texts_are_shown_as_many_as_asked_for(shelf):
    one = Predictions.read(shelf / "p.parquet")
    texts = {f"r{i}": f"<i>text</i> {i} " + "x" * 1000 for i in range(60)}
    page = report.render({"p": one}, resamples=5, texts=texts, examples=7)
    assert len(cards(page)) == 7
    assert "&lt;i&gt;text" in page
    assert "x" * 500 not in page


def test_the_command_asks_where_the_rows_are(shelf, tmp_path, capsys):
    asked = ["report", str(shelf / "p.parquet"), "--images", "3", "--out", str(tmp_path / "r.html")]
    assert main(asked) == 2
    assert "--image-folder" in capsys.readouterr().err
    assert main([*asked, "--image-folder", str(shelf / "images"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert page.count("data:image/") == 3
    assert "p.parquet" in page
    assert str(shelf) not in page
    assert re.search(r"SHA-256 [0-9a-f]{64}", page)


def test_overlapping_methods_differ_by_dashes_and_marks():
    rng = np.random.default_rng(0)
    p = rng.random((300, 3))
    y = rng.random(p.shape) < p
    ax = None
    for name in "abcdef":
        ax = plot.retrieval({1: 0.8, 2: 0.7}, name=name, ax=ax)
    looks = {(str(line._dash_pattern), line.get_marker()) for line in ax.lines}
    assert len(looks) == 6
    ax = plot.reliability(p, y, name="one")
    plot.reliability(p, y, name="two", ax=ax)
    drawn = [line for line in ax.lines if line.get_marker() not in ("None", "_", "|", "")]
    assert len({line.get_marker() for line in drawn}) == 2
