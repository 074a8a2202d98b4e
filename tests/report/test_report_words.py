"""What the report says is what the predictions are: words, marks, counts."""

import numpy as np
import pytest

from credibly import Predictions, metrics
from credibly.report import _charts, _numbers, _verdict


def predictions(p, y, labels=None, **more):
    labels = labels or [f"l{t}" for t in range(np.shape(p)[1])]
    return Predictions.from_arrays(probabilities=p, targets=y, labels=labels, **more)


def drawn(shift=0.0, rows=4000, labels=3):
    """Truth drawn from p; the probabilities given are off by ``shift``."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.8, (rows, labels))
    return predictions(np.clip(p + shift, 0, 1), (rng.random(p.shape) < p).astype(np.int8))


@pytest.mark.parametrize(
    ("shift", "word", "high", "low"),
    [(0.0, "well calibrated", 0, 0), (0.06, "usable", 3, 0), (-0.06, "usable", 0, 3)],
)
def test_the_verdict_follows_the_gap(shift, word, high, low):
    found = _verdict.verdict(drawn(shift))
    assert word in found.sentences[1]
    assert ("credibly calibrate" in found.sentences[1]) == (word != "well calibrated")
    assert (len(found.too_high), len(found.too_low)) == (high, low)


def test_a_large_gap_is_called_bad_and_a_calibrated_file_is_not_sent_to_calibrate():
    one = drawn(0.2)
    assert "badly calibrated" in _verdict.verdict(one).sentences[1]
    again = predictions(one.probabilities, one.targets, metadata={"calibrator": {"x": 1}})
    assert "credibly calibrate" not in _verdict.verdict(again).sentences[1]


def test_few_rows_are_allowed_the_gap_of_chance():
    sentence = _verdict.verdict(drawn(rows=60)).sentences[1]
    assert "well calibrated" in sentence


def test_a_level_needs_enough_entries():
    p, y = np.full((49, 1), 0.8), np.ones((49, 1), dtype=np.int8)
    assert "hardly ever undecided" in _verdict.verdict(predictions(p, y)).sentences[0]


def test_long_lists_say_how_many_more():
    assert _verdict._listed(tuple("abcdefg")) == "a, b, c, d, e and 2 more"


def test_the_best_is_marked_by_what_is_better():
    table = _numbers.comparison({"good": drawn(), "bad": drawn(0.2)}, resamples=20)
    for place, headline in enumerate(_numbers.HEADLINES):
        if headline.name in ("ACE", "NLL", "Brier"):
            assert [cells[place].best for cells in table.values()] == [True, False]


def test_intervals_do_not_fall_below_zero_and_narrow_with_rows(monkeypatch):
    assert _numbers.Cell(0.01, -0.02, 0.03, percent=True).interval == "0.0 – 3.0"
    whole = _numbers.comparison({"a": drawn()}, resamples=50)["a"][4]
    monkeypatch.setattr(_numbers, "ROWS_FOR_INTERVALS", 1000)
    part = _numbers.comparison({"a": drawn()}, resamples=50)["a"][4]
    assert part.estimate == whole.estimate
    assert part.high - part.low == pytest.approx(whole.high - whole.low, rel=0.5)


def test_labels_and_hits_count_known_entries_alone():
    p = np.array([[0.5, 0.25], [0.5, 0.75], [1.0, 0.5]])
    y = np.array([[1, 0], [-1, 1], [0, 1]], dtype=np.int8)
    one = predictions(p, y)
    rows = _numbers.label_rows(one)
    assert [(row.present, row.expected) for row in rows] == [(1, 1.5), (2, 1.5)]
    table = _charts._hits({"a": _charts.Judged(one, one.targets)}).rows
    assert table[0][2:4] == ["3", 3]
    assert table[1][2:4] == ["1", 0]
    assert _charts._sizes("a", one).rows == [["no label", 0], [1, 1], [2, 2]]


def test_a_chart_says_what_it_is_without_breaking_out():
    figure = _charts.plot.retrieval({1: 0.5}).figure
    assert 'aria-label="&quot;&gt;&lt;x"' in _charts.svg(figure, "n", '"><x')


def test_the_plotted_numbers_are_those_of_the_metrics():
    from credibly import plot

    one = drawn(0.1)
    found = metrics.reliability(one.probabilities, one.targets)
    line, _, (bars,) = plot.reliability(one.probabilities, one.targets).containers[0]
    seen = found.counts > 0
    np.testing.assert_allclose(line.get_ydata(), found.frequency[seen])
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends[:, 0], found.lower[seen], atol=1e-12)
    np.testing.assert_allclose(ends[:, 1], found.upper[seen], atol=1e-12)
    assert plot.retrieval({1: 0.5, 2: 0.25}).lines[-1].get_ydata().tolist() == [50, 25]
    points = plot.hits([1.0, 2.0], [3, 4]).collections[0].get_offsets()
    assert np.asarray(points).tolist() == [[1, 3], [2, 4]]
    truth, counts = np.eye(4, dtype=bool), np.array([19, 20, 100, 101])
    bars = plot.set_sizes(np.eye(4, dtype=bool), targets=truth, train_counts=counts).containers
    assert [[bar.get_height() for bar in group][1] for group in bars] == [1, 2, 1]
    assert [[bar.get_y() for bar in group][1] for group in bars] == [0, 1, 3]
