"""Probable errors are ranked, planted ones are found and counted, and annotators round-trip."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy.special import expit

from credibly import InputError, Predictions, review
from credibly.cli import main
from credibly.review import fiftyone, label_studio

LABELS = ["cat", "=dog", "big, cow"]


def record(rows: int = 4000, seed: int = 0, flips: float = 0.05, spread: float = 5.0):
    """Calibrated probabilities of the clean truth, the truth with planted errors, and where."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(-1.5, spread, (rows, len(LABELS)))
    truth = rng.random(log_odds.shape) < expit(log_odds)
    wrong = rng.random(truth.shape) < flips
    targets = (truth ^ wrong).astype(np.int8)
    targets[1::40] = -1
    predictions = Predictions.from_arrays(
        probabilities=expit(log_odds),
        targets=targets,
        labels=LABELS,
        ids=[f"r{row}" for row in range(rows)],
    )
    return predictions, wrong & (targets >= 0), truth


def test_entries_are_ranked_by_their_error_probability():
    predictions, _, _ = record(300)
    issues = review.label_issues(predictions, top=None, min_probability=0.0)
    assert len(issues) == predictions.probabilities.size
    values = [each.error_probability for each in issues]
    assert values == sorted(values, reverse=True)
    for each in issues:
        p = predictions.probabilities[each.row, LABELS.index(each.label)]
        given = predictions.targets[each.row, LABELS.index(each.label)]
        assert each.given == (None if given < 0 else given)
        assert each.probability == p
        assert each.kind == {1: "extra", 0: "missing", -1: "unknown"}[int(given)]
        assert predictions.ids[each.row] == each.id


@pytest.mark.parametrize("kind", ["missing", "extra", "unknown"])
def test_kinds_and_least_probability_are_kept_to(kind):
    predictions, _, _ = record(600)
    given = {"kinds": [kind], "top": None}
    issues = review.label_issues(predictions, min_probability=0.6, **given)
    every = review.label_issues(predictions, min_probability=0.0, **given)
    assert 0 < len(issues) < len(every)
    assert all(each.kind == kind for each in every)
    assert list(issues) == [each for each in every if each.error_probability >= 0.6]


def test_planted_errors_come_first():
    predictions, wrong, _ = record()
    issues = review.label_issues(predictions, top=200, kinds=["missing", "extra"])
    hits = [wrong[each.row, LABELS.index(each.label)] for each in issues]
    assert np.mean(hits) > 0.95


@pytest.mark.parametrize("spread", [1.5, 5.0, 12.0])
def test_a_right_truth_has_hardly_a_label_that_is_probably_wrong(spread):
    """A truth drawn from the probabilities contradicts the sure ones now and then."""
    for seed in range(3):
        predictions, wrong, _ = record(seed=seed, flips=0.0, spread=spread)
        found = review.label_issues(predictions, kinds=["missing", "extra"])
        assert found.wrong == len(found) <= 1e-4 * wrong.size


@pytest.mark.parametrize("seed", range(3))
def test_most_flipped_labels_are_found_by_a_sharp_model(seed):
    predictions, wrong, _ = record(seed=seed, flips=0.02, spread=12.0)
    found = review.label_issues(predictions, top=None, kinds=["missing", "extra"])
    hits = sum(wrong[each.row, LABELS.index(each.label)] for each in found)
    assert hits > 0.6 * wrong.sum()
    assert hits > 0.85 * len(found)
    assert found.wrong == len(found) <= 2 * found.total.expected
    p, y = predictions.probabilities, predictions.targets
    assert found.noise.probably_wrong(p, y).sum() == found.wrong


@pytest.mark.parametrize("flips", [0.0, 0.02, 0.05, 0.15])
def test_the_number_of_errors_is_estimated(flips):
    for seed in range(5):
        predictions, wrong, _ = record(seed=seed, flips=flips)
        total = review.label_issues(predictions, top=0).total
        assert total is not None
        assert total.expected == pytest.approx(wrong.sum(), abs=0.006 * wrong.size)


def test_errors_of_labels_add_up():
    predictions, wrong, _ = record()
    found = review.label_issues(predictions, top=0)
    assert [each.label for each in found.errors] == LABELS
    assert sum(each.expected for each in found.errors) == pytest.approx(found.total.expected)
    for place, each in enumerate(found.errors):
        assert each.known == (predictions.targets[:, place] >= 0).sum()
        assert each.expected == pytest.approx(wrong[:, place].sum(), rel=0.5, abs=3)


def test_a_truth_of_one_kind_has_no_estimate_but_a_queue():
    predictions = Predictions.from_arrays(
        probabilities=[[0.9], [0.1]], targets=[[0], [0]], labels=["a"]
    )
    issues = review.label_issues(predictions)
    assert issues.total is None
    assert len(issues) == 1


def test_a_filled_queue_corrects_the_truth(tmp_path, capsys):
    predictions, _, truth = record(500)
    predictions.write(tmp_path / "p.parquet")
    queue = tmp_path / "queue.csv"
    assert main(["review", str(tmp_path / "p.parquet"), "--top", "40", "--out", str(queue)]) == 0
    assert "Wrote 40 labels" in capsys.readouterr().out
    with queue.open(newline="") as file:
        rows = list(csv.DictReader(file))
    words = ["absent", "present"]
    for row in rows[:30]:
        place = LABELS.index(row["label"].removeprefix("'"))
        row["decision"] = words[int(truth[int(row["id"][1:]), place])]
    with queue.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    out = tmp_path / "corrected.parquet"
    given = ["review", str(tmp_path / "p.parquet"), "--reviews", str(queue), "--out", str(out)]
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reviews"] == 30
    corrected = Predictions.read(out)
    issues = review.label_issues(predictions, top=40)
    for place, each in enumerate(issues):
        column = LABELS.index(each.label)
        expected = (
            int(truth[each.row, column]) if place < 30 else predictions.targets[each.row, column]
        )
        assert corrected.targets[each.row, column] == expected
    assert (corrected.targets != predictions.targets).sum() <= 30


def test_label_studio_round_trip(tmp_path):
    predictions, _, truth = record(500)
    issues = review.label_issues(predictions, top=60)
    label_studio.write_tasks(issues, tmp_path / "tasks.json", root="/images", suffix=".jpg")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert sum(len(task["data"]["check"]) for task in tasks) == 60
    assert tasks[0]["data"]["image"] == f"/images/{issues[0].id}.jpg"
    for task in tasks[:-1]:  # the last one has no answer yet
        row = int(task["data"]["id"][1:])
        ticked = [
            each["value"]
            for each in task["data"]["check"]
            if truth[row, LABELS.index(each["value"])]
        ]
        result = [{"type": "choices", "value": {"choices": ticked}}] if ticked else []
        task["annotations"] = [{"result": result, "was_cancelled": False}]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    reviews = label_studio.read_reviews(tmp_path / "export.json")
    assert len(reviews) == 60 - len(tasks[-1]["data"]["check"])
    corrected = review.apply_reviews(predictions, reviews)
    for each in reviews:
        place = int(each.id[1:]), LABELS.index(each.label)
        assert corrected.targets[place] == truth[place]


def test_fiftyone_round_trip(tmp_path):
    predictions, _, truth = record(500)
    issues = review.label_issues(predictions, top=60)
    fiftyone.write_labels(issues, tmp_path / "labels.json")
    issues.write(tmp_path / "queue.csv")
    document = json.loads((tmp_path / "labels.json").read_text())
    reviewed = {
        name: [each for each in entries if truth[int(name[1:]), LABELS.index(each["label"])]]
        for name, entries in document["labels"].items()
    }
    reviewed.popitem()
    (tmp_path / "done.json").write_text(json.dumps({"classes": LABELS, "labels": reviewed}))
    reviews = fiftyone.read_reviews(tmp_path / "done.json", issues)
    assert {each.id for each in reviews} == set(reviewed)
    assert all(
        each.decision == truth[int(each.id[1:]), LABELS.index(each.label)] for each in reviews
    )
    again = fiftyone.read_reviews(tmp_path / "done.json", review.read_queue(tmp_path / "queue.csv"))
    assert again == reviews


BAD = {
    "no decision column": ("id,label\na,cat\n", "'decision' is missing"),
    "another word": ("id,label,decision\nr1,cat,perhaps\n", "line 2, the decision must be present"),
    "another id": ("id,label,decision\nx1,cat,1\n", "id 'x1', which the predictions do not have"),
    "another label": ("id,label,decision\nr1,cot,1\n", "label 'cot'.*Did you mean 'cat'"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_bad_reviews_are_named_and_nothing_is_written(text, message, tmp_path, capsys):
    import re

    record(10)[0].write(tmp_path / "p.parquet")
    (tmp_path / "queue.csv").write_text(text)
    given = ["review", str(tmp_path / "p.parquet"), "--reviews", str(tmp_path / "queue.csv")]
    assert main([*given, "--out", str(tmp_path / "c.parquet")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "c.parquet").exists()


@pytest.mark.parametrize("text", ["[]x", '{"a": 1}', '[{"data": {}}]', '{"labels": {"r1": [3.5]}}'])
def test_files_that_no_annotator_wrote_are_refused(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x.json"):
        label_studio.read_reviews(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"x.json"):
        fiftyone.read_reviews(tmp_path / "x.json", [])


def test_predictions_without_truth_are_refused():
    predictions = Predictions.from_arrays(probabilities=[[0.9]], labels=["a"])
    with pytest.raises(InputError, match="label issues need the truth"):
        review.label_issues(predictions)


def test_misspelt_kinds_are_answered(tmp_path, capsys):
    record(10)[0].write(tmp_path / "p.parquet")
    assert main(["review", str(tmp_path / "p.parquet"), "--kinds", "mising"]) == 2
    assert (
        "--kinds must be one of 'missing', 'extra', 'unknown'; got 'mising'"
        in capsys.readouterr().err
    )
