"""Counts among the rows whose truth is known are those of a direct evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import credibly as cr
from credibly.retrieve import Index, fit_joint, probability

LABELS = ["dog", "cat", "fork"]
QUERIES = ["+dog", "+dog +cat", "+dog -cat", "(dog | cat) & !fork", "!dog !cat !fork"]


@pytest.fixture(scope="module")
def record():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(600, 1))
    odds = rng.normal(-0.5, 1, (600, 3))
    truth = (odds + 2 * shared > 0).astype(np.int8)
    truth[rng.random(truth.shape) < 0.15] = -1
    rates = (1 / (1 + np.exp(-odds / 2))).astype(np.float32)
    return cr.Predictions.from_arrays(
        probabilities=rates,
        targets=truth,
        labels=LABELS,
        ids=[f"{row}" for row in range(600)],
    )


def holds(query, row):
    """True, False, or None where the known labels of a row leave the answer open."""
    found = set()
    free = [label for label, value in row.items() if value < 0]
    for number in range(2 ** len(free)):
        filled = dict(row)
        for place, label in enumerate(free):
            filled[label] = number >> place & 1
        p = np.array([[float(filled[name]) for name in LABELS]])
        found.add(bool(probability(query, p, LABELS)[0] > 0.5))
    return found.pop() if len(found) == 1 else None


def direct(record, query, values):
    names = [name for name in LABELS if name in query]
    rows = [{name: int(y) for name, y in zip(LABELS, line, strict=True)} for line in record.targets]
    # A row counts as known where all labels that the query names are known.
    known = np.array([all(row[name] >= 0 for name in names) for row in rows])
    answers = [holds(query, row) for row in rows]
    hits = sum(answer is True for answer, seen in zip(answers, known, strict=True) if seen)
    return int(known.sum()), float(values[known].sum()), hits


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("joint", [False, True], ids=["independent", "joint"])
def test_known_rows_expected_and_real_hits(record, query, joint, tmp_path):
    record.write(tmp_path / "p.parquet")
    model = None
    if joint:
        fit = fit_joint(record.probabilities, record.targets, LABELS)
        assert fit.chosen != "independent"
        model = fit.model
    index = Index.read(tmp_path / "p.parquet")
    asked = index.search(query, top=len(record), joint=model)
    values = np.empty(len(record))
    for hit in asked.hits:
        values[int(hit.id)] = hit.probability
    rows, expected, hits = direct(record, query, values)
    assert (asked.known_rows, asked.known_hits) == (rows, hits)
    assert asked.known_expected == pytest.approx(expected, rel=1e-5)
    assert asked.expected_hits == pytest.approx(values.sum(), rel=1e-5)
    stored = cr.retrieve.search(tmp_path / "p.parquet", query, top=5, joint=model)
    assert (stored.known_rows, stored.known_hits) == (rows, hits)
    assert stored.known_expected == pytest.approx(expected, rel=1e-5)
