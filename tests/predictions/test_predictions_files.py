"""What is written is what is read, whole or in pieces, and never half."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predictions_instances import ODD_LABELS, RECORDS, random_record, write_pieces

from credibly import InputError, Predictions
from credibly.predictions import Dataset, Writer, file_schema

UNICODE = st.characters(exclude_categories=["Cs"])  # all but halves of surrogate pairs
each_record = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())


@each_record
def test_what_is_written_is_what_is_read(record, tmp_path):
    record.write(tmp_path / "p.parquet")
    assert Predictions.read(tmp_path / "p.parquet") == record
    assert [file.name for file in tmp_path.iterdir()] == ["p.parquet"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    labels=st.lists(st.text(UNICODE, min_size=1, max_size=12), min_size=1, max_size=5, unique=True)
)
def test_a_label_may_be_called_anything(labels, tmp_path):
    record = random_record(4, labels)
    record.write(tmp_path / "p.parquet")
    assert Predictions.read(tmp_path / "p.parquet") == record


@each_record
def test_some_labels_and_rows_are_those_of_the_whole(record, tmp_path):
    path = tmp_path / "p.parquet"
    record.write(path)
    n, labels = len(record), record.labels
    reversed_labels = labels[::-1][:3]
    for rows in (slice(None, None, 2), slice(n // 2, n), [n - 1, 0], np.arange(n) % 3 == 0, [0, 0]):
        picked = Predictions.read(path, labels=reversed_labels, rows=rows)
        assert picked == record.select(reversed_labels)[rows]
    for name in labels if record.every_label else ():
        probabilities, targets = Dataset(path).column(name)
        alone = record.select([name])
        np.testing.assert_array_equal(probabilities, alone.probabilities[:, 0])
        if alone.targets is None:
            assert targets is None
        else:
            np.testing.assert_array_equal(targets, alone.targets[:, 0])


@each_record
@pytest.mark.parametrize("rows", [1, 10, 10_000])
def test_labels_read_some_at_a_time_make_the_whole(record, rows, tmp_path):
    record.write(tmp_path / "p.parquet")
    dataset = Dataset(tmp_path / "p.parquet", labels_at_once=3)
    assert dataset.read() == record
    assert dataset.read(rows=[len(record) - 1]) == record[[len(record) - 1]]
    pieces = list(dataset.batches(rows=rows))
    assert [len(piece) for piece in pieces] == [
        min(rows, len(record) - at) for at in range(0, len(record), rows)
    ]
    write_pieces(tmp_path / "again.parquet", pieces)
    assert Predictions.read(tmp_path / "again.parquet") == record


def test_an_error_names_row_and_column_where_labels_are_read_some_at_a_time(tmp_path):
    random_record(8).write(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    name = f"p:{ODD_LABELS[5]}"
    bad = pa.array([0.5] * 6 + [1.5, 0.5], pa.float32())
    pq.write_table(
        table.set_column(table.column_names.index(name), name, bad), tmp_path / "b.parquet"
    )
    with pytest.raises(InputError, match=rf"1.5 at row 6, column '{name}'"):
        Dataset(tmp_path / "b.parquet", labels_at_once=3).read()


@each_record
@pytest.mark.parametrize("rows", [1, 10, 10_000])
def test_pieces_in_order_make_the_whole(record, rows, tmp_path):
    record.write(tmp_path / "p.parquet")
    pieces = list(Dataset(tmp_path / "p.parquet").batches(rows=rows))
    assert max(map(len, pieces)) <= rows
    write_pieces(tmp_path / "again.parquet", pieces)
    assert Predictions.read(tmp_path / "again.parquet") == record


@each_record
@pytest.mark.parametrize("group", [1, 7, 100_000])
def test_a_file_written_in_pieces_is_the_one_written_whole(record, group, tmp_path):
    starts = range(0, len(record), 5)
    pieces = (record[start : start + 5] for start in starts)
    write_pieces(tmp_path / "p.parquet", pieces, row_group_rows=group)
    assert Predictions.read(tmp_path / "p.parquet") == record
    sizes = _row_groups(tmp_path / "p.parquet")
    assert max(sizes) <= group
    assert all(size == group for size in sizes[:-1])


def _row_groups(path: Path) -> list[int]:
    meta = pq.ParquetFile(path).metadata
    return [meta.row_group(place).num_rows for place in range(meta.num_row_groups)]


def test_the_schema_is_the_documented_one(tmp_path):
    random_record().write(tmp_path / "p.parquet")
    file = pq.ParquetFile(tmp_path / "p.parquet")
    types = {field.name: field.type for field in file.schema_arrow}
    assert list(types) == ["id"] + [
        kind + name for kind in ("p:", "s:", "y:") for name in ODD_LABELS
    ]
    assert types["id"] == pa.string()
    assert {types[f"p:{name}"] for name in ODD_LABELS} == {pa.float32()}
    assert {types[f"y:{name}"] for name in ODD_LABELS} == {pa.int8()}
    column = file.metadata.row_group(0).column(1)
    assert column.compression == "ZSTD"
    assert "RLE_DICTIONARY" not in column.encodings
    document = json.loads(file.metadata.metadata[b"credibly"])
    assert document["version"] == "1.0"
    assert document["labels"] == ODD_LABELS
    assert document["calibrator"] == {"kind": "affine", "slope": 1.25}


def test_another_program_reads_unknown_as_null(tmp_path):
    record = random_record(labels=["dog", "cat"])
    record.write(tmp_path / "p.parquet")
    table = duckdb.sql(f"""SELECT id, "p:dog", "y:dog" FROM '{tmp_path}/p.parquet'""").fetchnumpy()
    np.testing.assert_array_equal(table["p:dog"], record.probabilities[:, 0])
    assert record.targets is not None
    np.testing.assert_array_equal(np.ma.getmaskarray(table["y:dog"]), record.targets[:, 0] == -1)


def test_row_groups_shrink_where_there_are_many_columns(tmp_path):
    assert file_schema.row_group_rows(161) == 100_000
    assert file_schema.row_group_rows(20_001) * 20_001 <= file_schema.ROW_GROUP_CELLS
    assert file_schema.row_group_rows(10**9) == 1


def test_a_folder_of_parts_is_one_file(tmp_path):
    record = random_record()
    folder = tmp_path / "parts"
    record[:20].write(folder / "part-0.parquet")
    record[20:].select(record.labels[::-1]).write(folder / "part-1.parquet")
    (folder / ".part-2.parquet").write_bytes(b"half a fi")
    (folder / "part-3.parquet.part").write_bytes(b"half a fi")
    (folder / "_SUCCESS").touch()
    assert Predictions.read(folder) == record
    assert Dataset(folder).num_rows == len(record)
    assert Predictions.read(folder, rows=[30, 3]) == record[[30, 3]]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are not listed here")
def test_many_parts_are_not_open_at_once(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    whole = random_record(12)
    for row in range(12):
        whole[[row]].write(tmp_path / f"{row:02}.parquet")
    counts = [len(list(Path("/proc/self/fd").iterdir())) for _ in Dataset(tmp_path).batches()]
    assert len(counts) == 12
    assert max(counts) <= before + 2


def test_a_file_replaced_after_it_was_opened_is_noticed(tmp_path):
    random_record(9).write(tmp_path / "p.parquet")
    scan = Dataset(tmp_path / "p.parquet")
    random_record(7, seed=1).write(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p.parquet was changed after it was opened"):
        scan.read()


def test_truth_that_a_part_lacks_is_unknown(tmp_path):
    for kind in ("hard", "soft"):
        record = random_record(targets=kind)
        folder = tmp_path / kind
        bare = Predictions(record.probabilities, record.labels, record.ids)
        bare[:20].write(folder / "part-0.parquet")
        record[20:].write(folder / "part-1.parquet")
        read = Predictions.read(folder)
        assert read.targets is not None
        assert record.targets is not None
        assert (read.targets[:20] == -1).all()
        assert read.targets.dtype == record.targets.dtype
        np.testing.assert_array_equal(read.targets[20:], record.targets[20:])
        assert read.scores is None


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "p.parquet"
    record = random_record()
    record.write(path)
    with pytest.raises(RuntimeError, match="power cut"):
        write_pieces(path, _power_cut(record))
    with pytest.raises(
        InputError, match=r"p.parquet: ids must be different; 'row 0' is the id of rows 0"
    ):
        write_pieces(path, [record, record])
    with pytest.raises(InputError, match="at least one row"), Writer(path, record.labels):
        pass
    assert Predictions.read(path) == record
    assert [file.name for file in tmp_path.iterdir()] == ["p.parquet"]


def _power_cut(record: Predictions) -> Iterator[Predictions]:
    yield record
    raise RuntimeError("power cut")


def test_metadata_may_change_until_the_file_is_finished(tmp_path):
    with Writer(tmp_path / "p.parquet", ["dog"]) as writer:
        for name, value in {"a": 0.5, "b": 0.25}.items():
            rows = {"probabilities": [[value]], "ids": [name]}
            writer.append(Predictions.from_arrays(labels=["dog"], **rows))
        writer.metadata["seed"] = 7
    read = Predictions.read(tmp_path / "p.parquet")
    assert read.metadata["seed"] == 7
    assert read.ids.tolist() == ["a", "b"]


def test_soft_truth_may_follow_hard_truth_where_room_was_asked_for(tmp_path):
    pieces = [
        Predictions.from_arrays(probabilities=[[0.5]], labels=["x"], targets=[[y]], ids=[y])
        for y in (1, 0.25, -1)
    ]
    write_pieces(tmp_path / "p.parquet", pieces, soft=True)
    read = Predictions.read(tmp_path / "p.parquet")
    np.testing.assert_array_equal(read.targets, np.float32([[1], [0.25], [-1]]))
    with pytest.raises(InputError, match="soft=True"):
        write_pieces(tmp_path / "p.parquet", pieces)


@pytest.mark.parametrize("version", ["0.3", "1.0", "1.9"])
def test_older_and_equal_versions_are_read(version, tmp_path):
    _with_version(tmp_path / "p.parquet", version)
    assert len(Predictions.read(tmp_path / "p.parquet")) == 1


def test_a_newer_version_is_refused(tmp_path):
    _with_version(tmp_path / "p.parquet", "3.0")
    with pytest.raises(
        InputError, match=r"p.parquet: layout version 3.0 is newer than 2.0.*Upgrade"
    ):
        Predictions.read(tmp_path / "p.parquet")


def _with_version(path: Path, version: str) -> None:
    table = pa.table({"id": ["a"], "p:dog": pa.array([0.5], pa.float32())})
    document = json.dumps({"version": version, "labels": ["dog"]})
    pq.write_table(table.replace_schema_metadata({"credibly": document}), path)


def test_a_file_that_lost_its_metadata_is_read_by_its_columns(tmp_path):
    record = random_record(labels=["dog", "cat"])
    record.write(tmp_path / "p.parquet")
    query = f"COPY (FROM '{tmp_path}/p.parquet') TO '{tmp_path}/q.parquet'"
    duckdb.sql(query)
    read = Predictions.read(tmp_path / "q.parquet")
    assert read.metadata == {}
    assert Predictions(*(getattr(read, n) for n in _FIELDS), record.metadata) == record


_FIELDS = ("probabilities", "labels", "ids", "targets", "scores")


ID_COLUMNS = {
    "missing in the second row group": ["a", "b", "c", None],
    "there": ["a", "b", "c", "d"],
}


@pytest.mark.parametrize("case", ID_COLUMNS)
def test_ids_that_a_trusted_writer_lost_are_missed(case, tmp_path):
    ids = ID_COLUMNS[case]
    random_record(4, ["dog"]).write(tmp_path / "own.parquet")
    table = pq.read_table(tmp_path / "own.parquet")
    schema = table.schema.set(0, pa.field("id", pa.string()))  # may be null now
    kept = {b"credibly": pq.read_metadata(tmp_path / "own.parquet").metadata[b"credibly"]}
    table = pa.table([pa.array(ids), *table.columns[1:]], schema=schema.with_metadata(kept))
    # What the writer noted of the ids stays: "ids_checked" says that all four were compared.
    path = tmp_path / "changed.parquet"
    pq.write_table(table, path, row_group_size=2)
    dataset = Dataset(path)
    assert not dataset.ids_compared
    if None not in ids:
        dataset.check_ids(trust_writer=True)
        return
    with pytest.raises(InputError, match="every row must have an id"):
        dataset.check_ids(trust_writer=True)


@pytest.mark.parametrize("storage", ["dense", "top"])
@pytest.mark.parametrize("lost", ["scores", "targets"])
def test_every_batch_has_what_the_first_has(storage, lost, tmp_path):
    rows = random_record(6, ["dog", "cat", "owl"])
    if storage == "top":
        top = np.argsort(-rows.probabilities, axis=1)[:, :2]
        rows = Predictions.from_arrays(
            top=top,
            probabilities=np.take_along_axis(rows.probabilities, top, 1),
            scores=np.take_along_axis(rows.scores, top, 1),
            targets=np.array([[0, 1, 1]] * 6),
            labels=rows.labels,
            ids=rows.ids,
        )
    other = replace(
        rows[3:], **{lost: None}, **({"all_targets": None} if lost == "targets" else {})
    )
    for first, second in ((rows[:3], other), (other, rows[:3])):
        with pytest.raises(InputError, match="with scores and targets if the first has them"):
            write_pieces(tmp_path / "x.parquet", [first, second])
        write_pieces(tmp_path / "x.parquet", [first])
        assert Predictions.read(tmp_path / "x.parquet") == first


@pytest.mark.parametrize("kind", ["uint8", "uint64", "int8", "int64", "bool", "float32"])
def test_truth_of_any_type_of_numbers_may_be_unknown(tmp_path, kind):
    truth = pa.array([1, None, 0]).cast(kind)
    table = pa.table({"id": ["a", "b", "c"], "p:dog": pa.array([0.9, 0.2, 0.1]), "y:dog": truth})
    pq.write_table(table, tmp_path / "p.parquet")
    assert Predictions.read(tmp_path / "p.parquet").targets.ravel().tolist() == [1, -1, 0]
