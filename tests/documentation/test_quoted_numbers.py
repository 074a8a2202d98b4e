"""Numbers in prose are those of the tables they are taken from."""

import re
from pathlib import Path

import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_multilabel_classification
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results"

QUOTED = [
    (
        "docs/guide/search.md",
        r"expect ([\d.]+) times too many",
        "joint.md",
        "voc2012, 5",
        "independent",
        "pairs",
    ),
    (
        "docs/guide/search.md",
        r"and ([\d.]+) times too many",
        "joint.md",
        "voc2012, 5",
        "independent",
        "triples",
    ),
]
"""Page and pattern of a number; record, what stands above its table, row and column."""


@pytest.mark.parametrize(("page", "pattern", "source", "above", "row", "column"), QUOTED)
def test_a_number_in_prose_is_that_of_its_table(page, pattern, source, above, row, column):
    quoted = re.search(pattern, re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8")))
    assert quoted is not None
    text = (RECORD / source).read_text(encoding="utf-8").partition(f"\n{above}")[2]
    table = [line for line in text.splitlines() if line.startswith("|")]
    header, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    cells = next(cells for cells in rows if cells[0].startswith(row))
    place = next(k for k, name in enumerate(header) if name.startswith(column))
    assert quoted[1] == cells[place].split(" ±")[0]


def test_a_library_that_is_not_published_is_installed_from_its_clone():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install credibly" not in readme
    assert 'pip install ".[' in readme


def test_every_network_among_the_peers_is_said_to_be_uncalibrated():
    text = (RECORD / "default.md").read_text(encoding="utf-8")
    named = re.search(r"peers that are networks \((.+?)\) are not calibrated", text)
    assert named is not None
    rows = set(re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE))
    for peer in named[1].split(", "):
        assert peer in rows
        assert f"{peer}, calibrated" not in rows


def test_scikit_learn_calibrates_a_matrix_one_label_at_a_time():
    X, Y = make_multilabel_classification(60, n_classes=3, random_state=0)
    one = CalibratedClassifierCV(GaussianNB(), cv=2)
    assert OneVsRestClassifier(one).fit(X, Y).predict_proba(X).shape == (60, 3)
    with pytest.raises(ValueError, match="1d array"):
        one.fit(X, Y)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    header = re.search(r"^\| task \| (.*) \|$", readme, re.MULTILINE)
    row = re.search(r"^\| calibrators \| (.*) \|$", readme, re.MULTILINE)
    assert header is not None
    assert row is not None
    cells = dict(zip(header[1].split(" | "), row[1].split(" | "), strict=True))
    (said,) = (cell for name, cell in cells.items() if name.startswith("scikit-learn"))
    assert said == "one label at a time"


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/guide/training.md"])
def test_the_first_example_uses_a_loss_that_the_measurements_support(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    first = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert "lpr" not in first[1]
