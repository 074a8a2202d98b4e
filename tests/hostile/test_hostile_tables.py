"""Tables whose texts, offsets or sizes are lies: refused, whichever reader opens them."""

from __future__ import annotations

import ast
import gzip
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import credibly as cr
from credibly.untrusted.budget import BUDGETS, check_file, read_rows

SOURCE = Path(cr.__file__).parent
NOT_UTF8 = pa.StringArray.from_buffers(
    2, pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"ab\xff\xfe")
)
OFFSETS, PAST_THE_END = struct.pack("<3i", 0, 7, 13), struct.pack("<3i", 0, 7, 2**30)
ONE_TEXT_OFTEN = pa.DictionaryArray.from_arrays(
    pa.array(np.zeros(400, np.int32)), pa.array(["x" * 100_000])
)


def predictions(ids: pa.Array) -> pa.Table:
    return pa.table({"id": ids, "p:a": pa.array(np.linspace(0, 1, len(ids)).tolist())})


def own(path: Path, ids: pa.Array) -> None:
    """Write a predictions file with these ids."""
    document = json.dumps({"version": "1.0", "labels": ["a"]}).encode()
    table = predictions(ids).cast(
        pa.schema([("id", ids.type), ("p:a", pa.float32())], metadata={b"credibly": document})
    )
    pq.write_table(table, path, store_schema=False)


def dataset(path: Path, ids: pa.Array) -> None:
    """Write a folder of ``save_to_disk``."""
    path.mkdir()
    table = pa.table(
        {"id": ids, "x": pa.array([0.5] * len(ids)), "label": pa.array([0] * len(ids))}
    )
    with (
        pa.OSFile(str(path / "data.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))


WRITERS = {
    "x.parquet": lambda path, ids: pq.write_table(predictions(ids), path, store_schema=False),
    "x.arrow": lambda path, ids: feather.write_feather(
        predictions(ids), path, compression="uncompressed"
    ),
    "own.parquet": own,
    "hf": dataset,
}


def read(path: Path) -> object:
    if path.name == "own.parquet":
        return cr.Predictions.read(path)
    if path.is_dir():
        return cr.data.load(f"hf:{path}")
    return cr.Predictions.from_values(path, "probabilities")


@pytest.mark.parametrize("name", WRITERS)
def test_ids_that_are_not_utf8_are_refused(name, tmp_path):
    WRITERS[name](tmp_path / name, NOT_UTF8)
    with pytest.raises(cr.InputError, match=r"(?i)utf.?8"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["x.arrow", "hf"])
def test_offsets_past_the_end_are_refused(name, tmp_path):
    """Whoever follows them reads memory that is not there, and the process ends."""
    WRITERS[name](tmp_path / name, pa.array(["x" * 7, "y" * 6]))
    file = next(
        each for each in (tmp_path / name, tmp_path / name / "data.arrow") if each.is_file()
    )
    content = file.read_bytes()
    assert content.count(OFFSETS) == 1
    file.write_bytes(content.replace(OFFSETS, PAST_THE_END))
    with pytest.raises(cr.InputError, match=r"must be a.* Arrow"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["x.parquet", "own.parquet"])
def test_one_text_in_many_rows_is_counted_before_it_is_copied(name, tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 64 * 2**20)
    WRITERS[name](tmp_path / name, ONE_TEXT_OFTEN)
    assert (tmp_path / name).stat().st_size < 10_000
    with pytest.raises(cr.InputError, match="must fit into memory; 40,000,000 would take"):
        read(tmp_path / name)


def test_lists_of_a_few_bytes_are_counted_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 64 * 2**20)
    long = pa.ListArray.from_arrays([0, 10_000_000], pa.nulls(10_000_000, pa.float32()))
    pq.write_table(pa.table({"features": long, "y:a": [1]}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    with pytest.raises(cr.InputError, match="must fit into memory"):
        cr.data.load(tmp_path / "x.parquet")


def test_keys_of_json_lines_are_counted_before_they_are_columns(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 64 * 2**20)
    (tmp_path / "x.jsonl").write_text("".join(f'{{"a{n}": 1}}\n' for n in range(4000)))
    with pytest.raises(cr.InputError, match="must fit into memory; 4,000 × 4,000 would take"):
        cr.data.load(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (None, "columns must have different names"),
        ({"x": ["a"], "y:b": [1]}, "with the same schema"),
    ],
)
def test_parquet_files_that_do_not_go_together_are_refused(second, words, tmp_path):
    number = pa.array([1.5])
    if second is None:
        made = [pa.Table.from_arrays([number, number, number], ["x", "x", "y:b"])]
    else:
        made = [pa.table({"x": number, "y:b": [1]}), pa.table(second)]
    for place, table in enumerate(made):
        pq.write_table(table, tmp_path / f"{place}.parquet")
    with pytest.raises(cr.InputError, match=words):
        cr.data.load(tmp_path / "0.parquet" if second is None else f"parquet:{tmp_path}")


FOOTERS = """
import struct, sys
import credibly as cr
from pathlib import Path
path = Path(sys.argv[1])
whole = path.read_bytes()
(length,) = struct.unpack("<I", whole[-8:-4])
places = [at for at in range(len(whole) - 8 - length, len(whole) - 8) if whole[at] == 2]
for at in places:
    path.write_bytes(whole[:at] + b"\\0" + whole[at + 1 :])
    for read in (cr.data.load, cr.Predictions.read):
        try:
            read(path)
        except cr.InputError:
            pass
print(len(places))
"""


def test_a_footer_that_contradicts_itself_is_refused(tmp_path):
    """Arrow ends the process where the sizes of a column do not fit its type."""
    columns = {"id": ["a", "b"], "p:x": [0.25, 0.5], "y:x": [0, None]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    command = [sys.executable, "-W", "ignore", "-c", FOOTERS, str(tmp_path / "x.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) > 10


def test_gzip_is_unpacked_to_the_limit_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 64 * 2**20)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,y:b\n" + b"1,1\n" * 6_000_000))
    with pytest.raises(cr.InputError, match=r"x\.csv\.gz must fit into memory"):
        cr.data.load(tmp_path / "x.csv.gz")


def test_values_of_json_are_counted_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 64 * 2**20)
    (tmp_path / "map.json").write_text('{"x": [' + "[]," * 200_000 + "[]]}")
    with pytest.raises(cr.InputError, match=r"map\.json must fit into memory"):
        cr.Pipeline.read(tmp_path / "map.json")


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(BUDGETS, "numbers in lines", type(BUDGETS["text"])(2**42, line=100))
    (tmp_path / "x.svm").write_bytes(b"1 0:1\n" + b"1 " + b" " * 200)
    with pytest.raises(cr.InputError, match="a line must have at most 100 bytes"):
        list(read_rows(tmp_path / "x.svm"))


@pytest.mark.parametrize(
    "format", [name for name, each in BUDGETS.items() if each.file_bytes < 2**40]
)
def test_a_file_beyond_the_budget_of_its_format_is_refused_unread(format, tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.truncate(BUDGETS[format].file_bytes + 1)  # takes no room on the disk
    with pytest.raises(cr.InputError, match=r"x must have at most .* bytes; it has"):
        check_file(tmp_path / "x", format)


PARSES = re.compile(
    r"np\.(load|fromfile|loadtxt|genfromtxt)\(|torch\.load\(|safe_open\(|\bload_file\(|tomllib"
    r"|Image\.open\(|decode_jpeg|ZipFile\(|gzip\.|zlib\.decompress|h5py|loadmat|expat|etree"
    r"|feather\.read|ipc\.open|pickle\.load|pq\.(ParquetFile\(|read_)"
)
METHODS = {"open", "read_text", "read_bytes"}
OPENS_OTHER_THINGS = {
    "app/pages/import_file.py": "what the process that reads uploads left for this one",
    "app/rendering.py": "files of this package",
    "app/report.py": "an image, whose bytes go into the page as they are",
    "checksums.py": "every byte, none of them parsed",
    "cli/command.py": "a temporary file of the command",
    "compiled.py": "machine code that this package wrote, in a folder of the user",
    "executors.py": "temporary files of this program",
    "files.py": "locks of files that this package writes",
    "memory_limits.py": "/proc",
    "papers/datasets/mat.py": "bytes that the budget's reader returned",
    "papers/datasets/regions.py": "lines again whose places the budget's reader found",
    "review/reviews.py": "what a log grew by, after `check_file`",
    "runtime.py": "a map, with a check of its own: it imports nothing of this package",
    "train/prediction.py": "a temporary file of the command",
}


def reads(call: ast.Call) -> bool:
    """Whether a call may read a file that it opens."""
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    if any(str(text) in ("w", "wb", "x", "xb", "a", "ab") for text in texts):
        return False
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    owner = getattr(function.value, "id", "")
    by_method = function.attr in METHODS and owner not in ("os", "webbrowser")
    return by_method or (owner, function.attr) == ("json", "load")


def test_one_package_opens_what_others_made():
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        if PARSES.search(text) or any(map(reads, calls)):
            found.add(str(path.relative_to(SOURCE)))
    own = {name for name in found if name.startswith("untrusted/")}
    assert len(own) >= 5
    assert found - own == set(OPENS_OTHER_THINGS)
