"""The log of reviews: nothing that was acknowledged is lost, whoever writes and however it ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from credibly import Predictions
from credibly.checks import InputError
from credibly.cli import main
from credibly.review import Review, ReviewLog, read_reviews


def decisions(log):
    return [(each.review.id, each.review.label, each.review.decision) for each in log.entries()]


def test_a_log_keeps_every_decision_and_the_last_one_counts(tmp_path):
    log = ReviewLog(tmp_path / "log.jsonl")
    log.append([Review("a", "cat", 1), Review("b", "dog, =1+1\n", -1)], who='Ana "A"')
    ReviewLog(tmp_path / "log.jsonl").append([Review("a", "cat", 0)], who="Bo")
    assert decisions(log) == [("a", "cat", 1), ("b", "dog, =1+1\n", -1), ("a", "cat", 0)]
    assert {(each.id, each.decision) for each in log.reviews()} == {("a", 0), ("b", -1)}
    assert [each.who for each in log.entries()] == ['Ana "A"', 'Ana "A"', "Bo"]
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["present", "unsure", "absent"]
    assert read_reviews(tmp_path / "log.jsonl") == log.reviews()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_cut_off_by_a_kill_is_skipped_and_the_next_one_kept(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    ReviewLog(path).append([Review("a", "cat", 1)], "Ana")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:cut])
    log = ReviewLog(path)
    assert decisions(log) == [("a", "cat", 1)]
    log.append([Review("b", "cat", 0)], "Bo")
    assert decisions(log) == [("a", "cat", 1), ("b", "cat", 0)]
    assert log.skipped == 1
    assert path.read_bytes().startswith(whole + whole[:cut])  # nothing is ever rewritten


def test_a_log_that_begins_with_a_torn_line_can_be_used(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"id": "a", "la')
    log = ReviewLog(path)
    log.append([Review("b", "cat", 0)])
    assert decisions(log) == decisions(ReviewLog(path)) == [("b", "cat", 0)]


@pytest.mark.parametrize(
    "content", [b"id,label\na,cat\n", b"PAR1\x00\x00", b"[]\n[]\n", b"{}\n{}\n"]
)
def test_another_file_is_not_taken_for_a_log(tmp_path, content):
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match="log of reviews"):
        ReviewLog(path)
    assert path.read_bytes() == content


def test_a_log_needs_a_folder(tmp_path):
    with pytest.raises(InputError, match="folder"):
        ReviewLog(tmp_path / "nowhere" / "log.jsonl")
    with pytest.raises(InputError, match="file"):
        ReviewLog(tmp_path)


def test_a_replaced_log_is_read_anew(tmp_path):
    path = tmp_path / "log.jsonl"
    log = ReviewLog(path)
    log.append([Review("a", "cat", 1), Review("b", "cat", 1)])
    assert len(log.entries()) == 2
    path.unlink()
    assert log.entries() == []
    log.append([Review("c", "cat", 1)])
    assert decisions(log) == [("c", "cat", 1)]


def test_the_command_line_applies_a_log(tmp_path, capsys):
    predictions = Predictions.from_arrays(
        probabilities=[[0.99, 0.2], [0.03, 0.9]],
        targets=[[0, 0], [1, -1]],
        labels=["cat", "dog"],
        ids=["a", "b"],
    )
    predictions.write(tmp_path / "p.parquet")
    ReviewLog(tmp_path / "log.jsonl").append([Review("a", "cat", 1), Review("b", "cat", -1)])
    arguments = ["--reviews", tmp_path / "log.jsonl", "--out", tmp_path / "new.parquet"]
    assert main(["review", *map(str, [tmp_path / "p.parquet", *arguments])]) == 0
    assert "2 decisions" in capsys.readouterr().out
    found = Predictions.read(tmp_path / "new.parquet").targets
    np.testing.assert_array_equal(found, [[1, 0], [-1, -1]])
