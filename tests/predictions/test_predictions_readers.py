"""Every reader of predictions refuses the same files, with an error that says what is wrong."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from predictions_instances import random_record, shard_metadata, shard_name

import credibly as cr
from credibly import InputError, Predictions
from credibly.cli import main
from credibly.predictions import Dataset

ROWS = 8


def _good() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"id": [f"row {n}" for n in range(ROWS)]}
    columns |= {f"p:{name}": pa.array(rng.random(ROWS), pa.float32()) for name in ("dog", "cat")}
    columns |= {f"y:{name}": pa.array([1, 0, None, 1] * 2, pa.int8()) for name in ("dog", "cat")}
    return columns


def _changed(name: str, values: Any, kind: Any = None) -> pa.Table:
    return pa.table({**_good(), name: pa.array(values, kind)})


def _with(position: int, value: Any, rest: Any = 0.5) -> list[Any]:
    values = [rest] * ROWS
    values[position] = value
    return values


def _twice(name: str) -> pa.Table:
    table = pa.table(_good())
    return table.append_column(name, table[name])


NOW = datetime.datetime(2020, 1, 1)
DEFECTS: dict[str, tuple[Callable[[], pa.Table], str]] = {
    "NaN": (lambda: _changed("p:dog", _with(3, float("nan")), pa.float32()), "NaN"),
    "NaN in float64": (lambda: _changed("p:dog", _with(3, float("nan"))), "NaN"),
    "above 1": (lambda: _changed("p:dog", _with(3, 1.5)), r"in \[0, 1\]"),
    "just above 1": (lambda: _changed("p:dog", _with(3, 1 + 1e-12)), r"in \[0, 1\]"),
    "no probability": (lambda: _changed("p:dog", _with(3, None)), "p:dog"),
    "text": (lambda: _changed("p:dog", ["0.5"] * ROWS), "'p:dog' must hold numbers"),
    "lists": (lambda: _changed("p:dog", [[0.5]] * ROWS), "'p:dog' must hold numbers"),
    "structs": (lambda: _changed("p:dog", [{"x": 0.5}] * ROWS), "'p:dog' must hold numbers"),
    "timestamps": (lambda: _changed("p:dog", [NOW] * ROWS), "'p:dog' must hold numbers"),
    "truth of 2": (lambda: _changed("y:dog", _with(3, 2, 1), pa.int8()), "targets must be 0, 1"),
    "truth of -128": (lambda: _changed("y:dog", _with(3, -128, 1), pa.int8()), "targets must be"),
    "soft truth of 1.5": (lambda: _changed("y:dog", _with(3, 1.5)), "targets must be 0, 1"),
    "text as truth": (lambda: _changed("y:dog", ["1"] * ROWS), "'y:dog' must hold numbers"),
    "equal ids": (lambda: _changed("id", ["a"] * ROWS), "ids must be different"),
    "no id": (lambda: _changed("id", _with(3, None, "x")), "must have an id"),
    "ids as lists": (lambda: _changed("id", [[n] for n in range(ROWS)]), "'id' must hold text"),
    "ids as times": (lambda: _changed("id", [NOW] * ROWS), "'id' must hold text"),
    "ids as fractions": (lambda: _changed("id", [0.5] * ROWS), "'id' must hold text"),
    "a column twice": (lambda: _twice("p:dog"), "'p:dog' appears twice"),
    "ids twice": (lambda: _twice("id"), "'id' appears twice"),
    "truth of one label": (lambda: pa.table(_good()).drop_columns(["y:cat"]), "column 'y:cat'"),
    "no labels": (lambda: pa.table({"id": ["a"]}), "not a predictions file"),
}


def _served(path: Path) -> None:
    from starlette.testclient import TestClient

    answer = TestClient(cr.app.server.create_app([path]), base_url="http://localhost").get(
        "/api/search", params={"q": "+dog -cat"}
    )
    if answer.status_code != 200:
        raise cr.InputError(answer.json()["error"])


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "read": lambda path, out: Predictions.read(path),
    "evaluate": lambda path, out: cr.evaluate(path),
    "sets": lambda path, out: cr.write_sets(path, cr.decide.TopK(1), out / "sets.csv"),
    "search": lambda path, out: cr.retrieve.search(path, "+dog -cat"),
    "in memory": lambda path, out: cr.retrieve.Index.read(path),
    "report": lambda path, out: cr.app.report.write([path], out / "report.html"),
    "served": lambda path, out: _served(path),
}
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
each_defect = pytest.mark.parametrize(("table", "message"), DEFECTS.values(), ids=DEFECTS.keys())


@each_reader
@each_defect
def test_every_reader_refuses_a_defect_alike(table, message, reader, tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(table(), path)
    # A row without truth on purpose: sets do not need any, and still check what is there.
    with pytest.raises(InputError, match=f"(?s)bad.parquet.*{message}|{message}"):
        reader(path, tmp_path)
    assert not (tmp_path / "sets.csv").exists()
    assert not (tmp_path / "report.html").exists()


@each_reader
def test_every_reader_takes_the_file_without_a_defect(reader, tmp_path):
    pq.write_table(pa.table(_good()), tmp_path / "good.parquet")
    reader(tmp_path / "good.parquet", tmp_path)


@each_reader
def test_every_reader_refuses_shards_that_overlap(reader, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    table = pa.table(_good())
    pq.write_table(table.slice(0, 5), folder / "a.parquet")
    pq.write_table(table.slice(4), folder / "b.parquet")
    with pytest.raises(InputError, match="ids must be different; 'row 4'"):
        reader(folder, tmp_path)


@each_reader
@pytest.mark.parametrize("told", ["by name", "by metadata"])
def test_every_reader_refuses_a_folder_that_lacks_a_shard(reader, told, tmp_path):
    folder = _folder(tmp_path / "shards", told=told)
    lost = sorted(folder.iterdir())[1]
    shutil.move(lost, tmp_path / "elsewhere.parquet")
    expected = r"must hold all 3 shards; part-00001-of-00003.parquet is missing.*--shards 3.*--part"
    with pytest.raises(InputError, match=expected):
        reader(folder, tmp_path)


def _folder(folder: Path, told: str = "by name", count: int = 3) -> Path:
    record = random_record(20, ["dog", "cat"], seed=1)
    folder.mkdir(parents=True)
    for place, rows in enumerate(np.array_split(np.arange(20), count)):
        if told == "by name":
            record[rows].write(folder / shard_name(place, count))
        else:
            metadata = {**record.metadata, **shard_metadata(place, count, 20)}
            part = record[rows]
            kept = Predictions(
                part.probabilities, part.labels, part.ids, part.targets, part.scores, metadata
            )
            kept.write(folder / f"{place}.parquet")
    return folder


def test_a_whole_folder_and_one_that_is_asked_for_partly_are_read(tmp_path):
    folder = _folder(tmp_path / "shards")
    assert Dataset(folder).num_rows == 20
    (folder / shard_name(2, 3)).unlink()
    assert Dataset(folder, partial=True).num_rows == 14
    assert len(Predictions.read(folder, partial=True)) == 14
    assert cr.retrieve.search(folder, "+dog", partial=True).rows == 14
    assert len(cr.retrieve.Index.read(folder, partial=True)) == 14


def test_every_command_takes_partial(tmp_path, capsys):
    folder = _folder(tmp_path / "shards")
    (folder / shard_name(2, 3)).unlink()
    commands = {
        "evaluate": ["--json"],
        "sets": ["--top-k", "1", "--out", str(tmp_path / "sets.parquet"), "--json"],
        "search": ["+dog", "--json"],
    }
    for command, rest in commands.items():
        assert main([command, str(folder), *rest]) == 2, command
        assert "part-00002-of-00003.parquet is missing" in capsys.readouterr().err
        assert main([command, str(folder), *rest, "--partial"]) == 0, command
        assert "14" in capsys.readouterr().out, command
    for command in ("report", "serve", "calibrate"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--partial" in capsys.readouterr().out


def test_shards_of_two_predictions_and_a_shard_twice_are_refused(tmp_path):
    folder = _folder(tmp_path / "shards")
    shutil.copy(folder / shard_name(0, 3), folder / shard_name(0, 2))
    with pytest.raises(InputError, match=r"part-00000-of-00002.parquet is one of 2, .*one of 3"):
        Dataset(folder, partial=True)
    folder = _folder(tmp_path / "more", told="by metadata")
    shutil.copy(folder / "0.parquet", folder / "copy.parquet")
    with pytest.raises(InputError, match=r"0.parquet and copy.parquet are both shard 0 of 3"):
        Dataset(folder, partial=True)


def test_fewer_rows_than_shards_are_no_missing_shards(tmp_path):
    record = random_record(2, ["dog"])
    for place in range(2):
        metadata = shard_metadata(place, 5, 2)
        part = Predictions(record.probabilities[[place]], ["dog"], record.ids[[place]])
        Predictions(part.probabilities, part.labels, part.ids, metadata=metadata).write(
            tmp_path / shard_name(place, 5)
        )
    assert Dataset(tmp_path).num_rows == 2


def test_ids_are_compared_where_no_writer_has_done_it(tmp_path):
    """A note of the writer counts only for the rows it was written for."""
    record = random_record(20, ["dog", "cat"])
    path = tmp_path / "p.parquet"
    record.write(path)
    document = json.loads(pq.read_metadata(path).metadata[b"credibly"])
    assert document["ids_checked"] == 20
    table = pq.read_table(path)
    table = pa.concat_tables([table, table.slice(19)]).replace_schema_metadata(
        {"credibly": json.dumps(document)}
    )
    pq.write_table(table, path)
    for _ in range(2):
        with pytest.raises(InputError, match="ids must be different; 'row 19'"):
            cr.retrieve.search(path, "+dog", top=1)
