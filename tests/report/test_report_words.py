"""What the report says is what the predictions are: words, marks, counts."""

import numpy as np
import pytest
from reported import atlas, compared, predictions, served, verdict
from scipy.stats import binom

from credibly import metrics


def drawn(shift=0.0, rows=4000, labels=3):
    """Truth drawn from p; the probabilities given are off by ``shift``."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.8, (rows, labels))
    return predictions(np.clip(p + shift, 0, 1), (rng.random(p.shape) < p).astype(np.int8))


@pytest.mark.parametrize(
    ("shift", "grade", "high", "low"),
    [(0.0, "good", 0, 0), (0.06, "poor", 3, 0), (-0.06, "poor", 0, 3)],
)
def test_the_verdict_follows_the_gap(shift, grade, high, low):
    found = verdict(drawn(shift))
    assert found.grade == grade
    assert ("Calibrate it" in found.sentences[1]) == (grade != "good")
    assert (len(found.too_high), len(found.too_low)) == (high, low)


def test_the_grade_is_the_worst_of_gap_flagged_labels_and_counts():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.8, (4000, 10))
    factors = np.ones(10)
    y = (rng.random(p.shape) < p).astype(np.int8)
    assert verdict(predictions(p, y)).grade == "good"
    factors[0] = 0.8  # one label of ten is overstated: within what a good file may have
    one = verdict(predictions(p, (rng.random(p.shape) < p * factors).astype(np.int8)))
    assert (one.grade, len(one.too_high)) == ("good", 1)
    factors[1:3] = 0.8
    three = verdict(predictions(p, (rng.random(p.shape) < p * factors).astype(np.int8)))
    assert (three.grade, len(three.too_high)) == ("fair", 3)
    # Nearly every probability is tiny and twice too high: the gap is small, the counts are not.
    rare = np.full((20_000, 5), 0.02)
    over = verdict(predictions(rare, (rng.random(rare.shape) < 0.01).astype(np.int8)))
    assert over.grade == "poor"
    assert any(sentence.startswith("It expects") for sentence in over.sentences)


def test_a_calibrated_file_is_not_sent_to_calibrate():
    one = drawn(0.2)
    again = predictions(one.probabilities, one.targets, metadata={"calibrator": {"x": 1}})
    assert "Calibrate it" in verdict(one).sentences[1]
    assert "Calibrate it" not in verdict(again).sentences[1]


def test_few_rows_are_not_judged():
    three = predictions(np.array([[0.8], [0.6], [0.3]]), np.array([[1], [0], [0]]))
    assert "too few" in verdict(three).sentences[0]
    assert "too few rows to judge calibration" in verdict(three).sentences[1]
    rng = np.random.default_rng(3)
    p = rng.random((170, 3))
    few = verdict(predictions(p, (rng.random(p.shape) < p).astype(np.int8)))
    assert few.grade == "unknown"
    assert "too few rows to tell" in few.sentences[1]


def test_the_verdict_includes_accuracy():
    rng = np.random.default_rng(0)
    rates = np.array([0.05, 0.1, 0.15, 0.2, 0.3])
    y = (rng.random((3000, 5)) < rates).astype(np.int8)
    weak = verdict(predictions(np.tile(rates, (3000, 1)) + rng.normal(0, 1e-6, y.shape), y))
    assert weak.grade == "good"
    assert "ranking is weak" in weak.sentences[2]
    assert "get no label" in weak.sentences[2]
    sharp = verdict(predictions(np.where(y == 1, 0.95, 0.02), y))
    assert "ranking is good" in sharp.sentences[2]
    assert "get no label" not in sharp.sentences[2]


def flags(p, y, folder):
    return np.array([row["flag"] for row in atlas(predictions(p, y), folder)])


@pytest.mark.parametrize("seed", range(4))
def test_calibrated_labels_are_not_accused(seed, tmp_path):
    """1,200 labels that are exactly right, rare ones among them: families accused are few."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.3, 20, (600, 1200))
    found = flags(p, (rng.random(p.shape) < p).astype(np.int8), tmp_path)
    assert not found.any()


def test_labels_that_are_wrong_are_accused_and_few_others(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.6, (1500, 200))
    given = p.copy()
    given[:, :10] = np.clip(p[:, :10] + 0.1, 0, 1)
    given[:, 10:20] = p[:, 10:20] / 2
    y = (rng.random(p.shape) < p).astype(np.int8)
    y[:700, 5] = -1
    found = flags(given, y, tmp_path)
    assert set(np.flatnonzero(found == "too high")) == set(range(10))
    assert set(np.flatnonzero(found == "too low")) == set(range(10, 20))


@pytest.mark.parametrize(("n", "p"), [(60, 0.02), (400, 0.3)])
def test_a_label_alone_is_accused_only_where_the_exact_test_is_sure(n, p, tmp_path):
    accused = []
    for present in range(0, n + 1, 3):
        y = np.zeros((n, 1), np.int8)
        y[:present] = 1
        (flag,) = flags(np.full((n, 1), p), y, tmp_path)
        exact = 2 * min(binom.cdf(present, n, p), binom.sf(present - 1, n, p))
        assert not flag or exact <= 0.05
        accused += [present] if flag else []
    assert len(accused) > n / 6  # and where it is far off, it is


def test_a_level_needs_enough_entries():
    p, y = np.full((49, 1), 0.8), np.ones((49, 1), dtype=np.int8)
    assert "too few to say" in verdict(predictions(p, y)).sentences[0]
    p, y = np.vstack([p, np.ones((9, 1))]), np.vstack([y, y[:9]])
    assert "Too few probabilities lie between" in verdict(predictions(p, y)).sentences[0]


def test_long_lists_say_how_many_more():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 0.6, (2000, 7))
    one = predictions(p, (rng.random(p.shape) < p / 2).astype(np.int8), list("abcdefg"))
    assert verdict(one).sentences[-1].endswith(" and 2 more.")


def test_the_best_is_marked_by_what_is_better():
    table = compared({"good": drawn(), "bad": drawn(0.2)}, 20)
    for name in ("ACE", "NLL", "Brier"):
        assert [cells[name].best for cells in table.values()] == [True, False]


def test_a_star_needs_a_clear_paired_difference():
    one = drawn()
    rng = np.random.default_rng(1)
    other = np.clip(one.probabilities + rng.normal(0, 1e-4, one.probabilities.shape), 0, 1)
    table = compared({"a": one, "b": predictions(other, one.targets)}, 100)
    assert not any(cell.best for cells in table.values() for cell in cells.values())


@pytest.mark.parametrize("shift", [0.0, 0.03])
def test_intervals_do_not_fall_below_zero_and_hold_the_estimate(shift):
    for cell in compared({"a": drawn(shift)}, 100)["a"].values():
        assert 0 <= float(cell.low) <= cell.estimate <= float(cell.high)


def test_labels_without_truth_say_so(tmp_path):
    one = predictions(np.array([[0.5, 0.25], [0.5, 0.75]]), None, ["a", "b"])
    rows = atlas(one, tmp_path)
    assert [(row["known"], row["rate"], row["expected rate"]) for row in rows] == [
        (None, None, 0.5)
    ] * 2


def test_labels_and_hits_count_known_entries_alone(tmp_path):
    p = np.array([[0.5, 0.25], [0.5, 0.75], [1.0, 0.5]])
    y = np.array([[1, 0], [-1, 1], [0, 1]], dtype=np.int8)
    predictions(p, y, ["a", "b"]).write(tmp_path / "p.parquet")
    client = served(tmp_path / "p.parquet")
    found = [client.get("/api/label", params={"name": name}).json() for name in "ab"]
    assert [(each["present"], each["known_expected"]) for each in found] == [(1, 1.5), (2, 1.5)]


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
    assert plot.retrieval({1: 0.5, 2: 0.25}).lines[-1].get_ydata().tolist() == [0.5, 0.25]
    truth, counts = np.eye(4, dtype=bool), np.array([19, 20, 100, 101])
    bars = plot.set_sizes(np.eye(4, dtype=bool), targets=truth, train_counts=counts).containers
    assert [[bar.get_height() for bar in group][1] for group in bars] == [1, 2, 1]
    assert [[bar.get_y() for bar in group][1] for group in bars] == [0, 1, 3]
