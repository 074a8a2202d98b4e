"""Files of earlier versions are read to the numbers they held; newer ones are refused by name.

The files in ``golden`` are never written again: they stand for what people have on disk. A new
layout gets files of its own beside them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import credibly as cr
from credibly import InputError
from credibly.cli import main
from credibly.train import run_folder

GOLDEN = Path(__file__).parent / "golden"
PREDICTIONS, RUN, SETS = (
    GOLDEN / "predictions-1.0.parquet",
    GOLDEN / "run-1.0",
    GOLDEN / "sets-1.0.parquet",
)
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
ROWS = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [-3.0, 0.25, 8.0]], dtype=np.float32)


def printed(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predictions_of_1_0_hold_what_was_written():
    found, expected = cr.Predictions.read(PREDICTIONS), EXPECTED["predictions"]
    assert found.labels == expected["labels"]
    assert list(found.ids) == expected["ids"]
    assert found.metadata["note"] == "golden"
    np.testing.assert_array_equal(found.targets, expected["targets"])
    for name in ("probabilities", "scores"):
        wanted = np.array(expected[name], dtype=np.float32)
        np.testing.assert_array_equal(getattr(found, name), wanted)


def test_evaluate_gives_the_same_numbers(capsys):
    # Version 0.1 left small bins out of MCE alone; now they are left out of ACE too.
    small = ("evaluate", str(PREDICTIONS), "--min-count", "0")
    numbers = printed(capsys, *small)["files"][0]["numbers"]
    usual = printed(capsys, "evaluate", str(PREDICTIONS))["files"][0]["numbers"]
    numbers["MCE"] = usual["MCE"]
    for name, value in EXPECTED["evaluate"].items():
        assert numbers[name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("query", EXPECTED["search"])
def test_search_gives_the_same_rows(capsys, query):
    found = printed(capsys, "search", str(PREDICTIONS), query, "--top", "4")
    expected = EXPECTED["search"][query]
    assert [row["id"] for row in found["results"]] == expected["ids"]
    assert found["expected_hits"] == pytest.approx(expected["expected_hits"], rel=1e-6)


def test_sets_come_out_as_the_file_of_1_0(tmp_path):
    again = tmp_path / "sets.parquet"
    arguments = ["--average-size", "1.5", "--out", str(again), "--quiet"]
    assert main(["sets", str(PREDICTIONS), *arguments]) == 0
    old, new = pq.read_table(SETS), pq.read_table(again)
    assert old.schema.equals(new.schema)
    assert old.to_pylist() == new.to_pylist()
    document = json.loads(old.schema.metadata[b"credibly"])
    assert (document["version"], document["kind"]) == ("1.0", "sets")


def test_a_run_of_1_0_predicts_the_same(capsys):
    run = cr.load(RUN)
    found = run.predict(ROWS)
    np.testing.assert_allclose(found.probabilities, EXPECTED["run"]["probabilities"], rtol=1e-5)
    assert run.decision.predict(found.probabilities).tolist() == EXPECTED["run"]["sets"]
    assert run.metrics == EXPECTED["run"]["metrics"]
    old = cr.Predictions.read(RUN / "predictions.parquet")
    assert old.metadata["loss"] == "spa"


def copied(folder: Path, **changes: str) -> Path:
    shutil.copytree(RUN, folder / "run")
    config = folder / "run" / "config.toml"
    text = config.read_text(encoding="utf-8")
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    return folder / "run"


def test_a_new_run_carries_its_layout(tmp_path):
    data = cr.data.synthetic(60, num_features=3, num_labels=4)
    cr.train.fit(data, cr.train.recipe(model="linear", epochs=1), folder=tmp_path / "run")
    assert f'layout = "{run_folder.LAYOUT}"' in (tmp_path / "run" / "config.toml").read_text()


@pytest.mark.parametrize("line", ["", 'layout = "1.7"\n', 'layout = "0.9"\n'])
def test_runs_without_a_layout_or_of_the_same_major_are_read(tmp_path, line):
    run = cr.load(copied(tmp_path, layout=('layout = "1.0"\n', line)))
    expected = EXPECTED["run"]["probabilities"]
    np.testing.assert_allclose(run.predict(ROWS).probabilities, expected, rtol=1e-5)


def test_a_run_of_a_newer_major_is_refused_before_anything_else(tmp_path):
    unknown = ('loss = "spa"', 'loss = "spa"\nfuture = 1')
    run = copied(tmp_path, layout=('layout = "1.0"', 'layout = "2.0"'), setting=unknown)
    with pytest.raises(InputError, match=r"config.toml: layout version 2.0 is newer .* Upgrade"):
        cr.load(run)


@pytest.mark.parametrize("value", ['"x"', "[]", '"²"', '""'])
def test_a_layout_that_is_no_version_is_explained(tmp_path, value):
    run = copied(tmp_path, layout=('layout = "1.0"', f"layout = {value}"))
    with pytest.raises(InputError, match=r"`layout` must be a version"):
        cr.load(run)


def test_a_finished_run_is_read_by_later_releases(monkeypatch):
    monkeypatch.setattr(run_folder, "__version__", "3.4.5")
    found = cr.load(RUN).predict(ROWS).probabilities
    np.testing.assert_allclose(found, EXPECTED["run"]["probabilities"], rtol=1e-5)


def test_sets_and_reports_refuse_predictions_of_a_newer_major(tmp_path, capsys):
    table = pq.read_table(PREDICTIONS)
    kept = pq.read_metadata(PREDICTIONS).metadata
    document = json.loads(kept[b"credibly"]) | {"version": "3.0"}
    newer = tmp_path / "newer.parquet"
    pq.write_table(table.replace_schema_metadata({"credibly": json.dumps(document)}), newer)
    out = str(tmp_path / "out")
    commands = {
        "evaluate": [],
        "sets": ["--top-k", "1", "--out", out + ".parquet"],
        "search": ["+fork"],
        "report": ["--out", out + ".html"],
        "serve": [],
    }
    for command, rest in commands.items():
        assert main([command, str(newer), *rest]) == 2, command
        assert "layout version 3.0 is newer than" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["newer.parquet"]


RUNS_0_1 = GOLDEN / "runs-0.1"
EXPECTED_RUNS = json.loads((RUNS_0_1 / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED_RUNS)
def test_every_kind_of_run_written_by_0_1_predicts_the_same(name):
    run, expected = cr.load(RUNS_0_1 / f"run-{name}"), EXPECTED_RUNS[name]
    found = run.predict(ROWS)
    np.testing.assert_allclose(found.probabilities, expected["probabilities"], rtol=1e-5)
    assert run.decision.predict(found.probabilities).tolist() == expected["sets"]
    assert run.metrics == expected["metrics"]


def test_a_folder_of_parts_written_by_0_1_is_read_where_one_part_has_no_truth():
    expected = json.loads((GOLDEN / "parts-0.1" / "expected.json").read_text(encoding="utf-8"))
    found = cr.Predictions.read(GOLDEN / "parts-0.1")
    np.testing.assert_allclose(found.probabilities, expected["probabilities"], rtol=1e-6)
    np.testing.assert_array_equal(found.targets, expected["targets"])


@pytest.mark.parametrize("query", ["+{0}", "+{0} -{1}", "({0} | {1}) & !{2}"])
def test_search_reads_the_folder_of_0_1_as_every_other_reader_does(query):
    table = cr.Predictions.read(GOLDEN / "parts-0.1")
    query = query.format(*(f'"{name}"' for name in table.labels))
    index = cr.retrieve.Index(
        table.probabilities, table.labels, table.ids, table.targets, coding="unknown"
    )
    expected = index.search(query, top=6)
    for found in (
        cr.retrieve.search(GOLDEN / "parts-0.1", query, top=6),
        cr.retrieve.Index.read(GOLDEN / "parts-0.1").search(query, top=6),
    ):
        assert found.hits == expected.hits
        assert (found.known_rows, found.known_hits) == (expected.known_rows, expected.known_hits)
        assert found.expected_hits == pytest.approx(expected.expected_hits)
