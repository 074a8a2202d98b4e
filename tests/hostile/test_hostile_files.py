"""Files made to do harm: bombs, lies about sizes, depth, pickles. All are refused by name."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr

HUGE = 10**12


def _header(shape, descr="<f4", extra=b""):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + extra


def _npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def read_probabilities(path):
    return cr.Predictions.from_values(path, "probabilities")


READERS = {"data": cr.data.load, "predictions": read_probabilities}
each_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
TWO = _npy(np.array([[0.5, 0.25], [1.0, 0.0]]))

LIES = {
    "shape": (_header((HUGE, HUGE)), "must hold .* bytes, as its header says"),
    "one byte short": (_header((1, 2), extra=b"\0" * 7), "must hold 8 bytes"),
    "one byte over": (_header((1, 2), extra=b"\0" * 9), "must hold 8 bytes"),
    "negative": (_header((-1, 2)), r"rows; got shape \(-1, 2\)"),
    "no rows, many columns": (_header((0, HUGE)), "must hold something"),
    "cells of no size": (_header((HUGE,), "<U0"), "plain arrays"),
    "scalar": (_npy(np.float32(3)), r"with rows; got shape \(\)"),
    "objects": (_header((1, 1), "|O", b"N."), "no pickled objects"),
    "record": (_npy(np.zeros((2, 2), dtype=[("a", "f4")])), "plain arrays"),
    "no letters": (_header((2,), "<U1", b"\xff" * 8), "must be Unicode text"),
    "half letters": (_header((2,), "<U1", struct.pack("<II", 0xD800, 65)), "must be Unicode text"),
    "no array": (b"hello", "must be a complete .npz file"),
    "deep header": (_header("(" * 5000), "must be a complete .npz file"),
    "format": (b"\x93NUMPY\x09\x00" + b"\0" * 20, "format 1.0 or 2.0"),
}


@each_reader
@pytest.mark.parametrize(("content", "match"), LIES.values(), ids=LIES.keys())
def test_an_array_that_is_not_what_it_claims_is_refused(read, content, match, tmp_path):
    path = _npz(tmp_path / "x.npz", features=content, probabilities=content, targets=TWO)
    if read is cr.data.load:
        path = _npz(tmp_path / "x.npz", features=content, targets=TWO)
    with pytest.raises(cr.InputError, match=match):
        read(path)


@each_reader
def test_a_zip_bomb_is_refused_unread(read, tmp_path, monkeypatch):
    """The size it declares is compared with memory, before a byte is unpacked."""
    monkeypatch.setattr("credibly.checks._memory", lambda: 4 * 2**20)
    cells = np.zeros((600, 600), dtype=np.float32)
    name = "features" if read is cr.data.load else "probabilities"
    path = _npz(tmp_path / "x.npz", **{name: _npy(cells)})
    assert path.stat().st_size < 5000
    with pytest.raises(cr.InputError, match=r"x\.npz must fit into memory"):
        read(path)


@each_reader
def test_a_bare_npy_a_locked_zip_and_broken_compression_are_refused(read, tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(TWO)
    with pytest.raises(cr.InputError, match=r"must be a complete \.npz file"):
        read(path)
    whole = bytearray(_npz(path, probabilities=TWO, features=TWO).read_bytes())
    for place, value in ((6, 1), (8, 99)):  # the encrypted bit; an unknown compression
        broken = bytearray(whole)
        start = 0
        for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            start = -1
            while (start := broken.find(mark, start + 1)) >= 0:
                broken[start + place + shift] = value
        path.write_bytes(broken)
        with pytest.raises(cr.InputError, match=r"must be a complete \.npz file|unknown array"):
            read(path)


class _Trap:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_no_pickle_is_ever_run(tmp_path):
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(_Trap(sprung))
    pickle.loads(trap).close()
    assert sprung.exists(), "the trap works"
    sprung.unlink()
    member = _header((1, 1), "|O", trap)
    for read, name in ((cr.data.load, "features"), (read_probabilities, "probabilities")):
        with pytest.raises(cr.InputError, match="no pickled objects"):
            read(_npz(tmp_path / "x.npz", **{name: member}))
    data = cr.data.synthetic(80, num_features=4)
    cr.train.fit(data, cr.train.Network(model="mlp", epochs=1), folder=tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    for name in ("x.npz", "x.parquet", "run/model.safetensors"):
        (tmp_path / name).write_bytes(trap)
    for read in (
        lambda p: cr.data.load(p / "x.npz"),
        lambda p: cr.Predictions.read(p / "x.parquet"),
    ):
        with pytest.raises(cr.InputError):
            read(tmp_path)
    with pytest.raises(cr.InputError, match="safetensors"):
        cr.load(tmp_path / "run").predict(data)
    assert not sprung.exists()


@pytest.mark.parametrize("index", [1_000_000, HUGE])
def test_absurd_class_indices_are_refused_before_time_or_memory_is_taken(index, tmp_path):
    members = {"features": TWO, "targets": _npy(np.array([index, 0]))}
    with pytest.raises(cr.InputError, match=f"below 1,000,000 .* not given; got {index:,}"):
        cr.data.load(_npz(tmp_path / "x.npz", **members))


def test_absurd_numbers_of_labels_are_refused_before_memory_is_taken(tmp_path):
    members = {"features": _header((10**6, 0)), "labels": _npy(np.arange(10**5).astype("U6"))}
    with pytest.raises(cr.InputError, match="targets must fit into memory"):
        cr.data.load(_npz(tmp_path / "x.npz", **members))


def test_a_label_of_its_own_in_every_row_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("credibly.checks._memory", lambda: 2**20)
    rows = "".join(f"{row},label-{row}\n" for row in range(1000))
    (tmp_path / "x.csv").write_text("x,labels\n" + rows)
    with pytest.raises(cr.InputError, match="targets must fit into memory; 1,000 × 1,000"):
        cr.data.load(tmp_path / "x.csv")


def test_arff_that_spreads_out_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.arff"
    names = "".join(f"@attribute a{n} numeric\n" for n in range(400))
    path.write_text("@relation 'x: -C 1'\n" + names + "@data\n" + "{}\n" * 400)
    values = ",".join(f"v{n}" for n in range(400))
    monkeypatch.setattr("credibly.checks._memory", lambda: 2**20)
    with pytest.raises(cr.InputError, match="must fit into memory; 400 × 400"):
        cr.data.load(path)
    nominal = f"@attribute a {{0,1}}\n@attribute b {{{values}}}\n@data\n"
    path.write_text("@relation 'x: -C 1'\n" + nominal + "0,v1\n" * 400)
    with pytest.raises(cr.InputError, match="features must fit into memory; 400 × 400"):
        cr.data.load(path)


def test_arff_with_absurd_numbers_is_refused(tmp_path):
    path = tmp_path / "x.arff"
    head = "@relation 'x: -C {}'\n@attribute a numeric\n@attribute b numeric\n@data\n"
    path.write_text(head.format(1) + "{" + "9" * 5000 + " 1}\n")
    with pytest.raises(cr.InputError, match="with an index below 2"):
        cr.data.load(path)
    path.write_text(head.format("9" * 5000) + "1,2\n")
    with pytest.raises(cr.InputError, match="which attributes are labels"):
        cr.data.load(path)


def _parquet(path, document, **columns):
    table = pa.table(columns or {"id": ["x"], "p:a": [0.5]})
    pq.write_table(table.replace_schema_metadata({b"credibly": document}), path)
    return path


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 100_000,
        b'{"version": "1.0", "labels": 5}',
        b'{"version": "1.0", "labels": {"a": 1}}',
        b'{"version": "1.0", "labels": [["a"]]}',
        b'{"version": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b"null",
    ],
)
def test_strange_metadata_is_refused(document, tmp_path):
    with pytest.raises(cr.InputError, match=r"x\.parquet: the metadata"):
        cr.Predictions.read(_parquet(tmp_path / "x.parquet", document))


def test_column_names_of_parquet_that_are_no_text_are_refused(tmp_path):
    path = _parquet(tmp_path / "x.parquet", b'{"version": "1.0", "labels": ["a"]}')
    path.write_bytes(path.read_bytes().replace(b"p:a", b"p:\xff"))
    for read in (cr.Predictions.read, read_probabilities, cr.data.load):
        with pytest.raises(cr.InputError, match=r"x\.parquet must be"):
            read(path)


def _varint(number):
    """A count as Parquet's footer has it: zigzag, seven bits a byte, the lowest first."""
    number, digits = 2 * number, []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize("claimed", [499, 501, 8000])
def test_a_row_count_that_contradicts_the_row_groups_is_refused(claimed, tmp_path):
    path = tmp_path / "x.parquet"
    columns = {"id": [str(n) for n in range(500)], "p:a": np.linspace(0, 1, 500)}
    _parquet(path, b'{"version": "1.0", "labels": ["a"]}', **columns)
    assert cr.Predictions.read(path).probabilities.shape == (500, 1)
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # The file's own count is the footer's third field, an i64, between the schema and the groups.
    before, after = b"\x16", b"\x19\x1c"
    place = whole.index(before + _varint(500) + after, start) + len(before)
    path.write_bytes(whole[:place] + _varint(claimed) + whole[place + 2 :])
    assert pq.read_metadata(path).num_rows == claimed
    with pytest.raises(cr.InputError, match=f"x.parquet .* {claimed} rows; its row groups, 500"):
        cr.Predictions.read(path)


def test_a_parquet_file_of_countless_nulls_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"y:a": pa.nulls(10**6, pa.int8()), "x": pa.nulls(10**6)}), path)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr("credibly.checks._memory", lambda: 2**20)
    for read in (cr.data.load, read_probabilities):
        with pytest.raises(cr.InputError, match="must fit into memory; 2,000,000 would"):
            read(path)


def test_names_of_columns_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,s:\xff\xff\na,1\n")
    with pytest.raises(cr.InputError, match=r"x\.csv must be a CSV file"):
        read_probabilities(path)
    with pytest.warns(UserWarning, match="Latin-1"), pytest.raises(cr.InputError, match=r"x\.csv"):
        cr.data.load(path)


def test_a_column_that_is_there_twice_among_many_is_named(tmp_path):
    names = [*(f"f{n}" for n in range(2000)), "f7"]
    (tmp_path / "x.csv").write_text(",".join(names) + "\n" + ",".join("1" * 2001) + "\n")
    with pytest.raises(cr.InputError, match="'f7' appears twice"):
        cr.data.load(tmp_path / "x.csv")


COCO = {
    "categories": [{"id": 1, "name": "cat"}],
    "images": [{"id": 5, "file_name": "a.jpg"}],
    "annotations": [{"image_id": 5, "category_id": 1}],
}
STRANGE_COCO = {
    "numbers for lists": {"images": 5},
    "objects for lists": {"annotations": {"image_id": 5}},
    "ids of mixed kinds": {"categories": [{"id": 1, "name": "a"}, {"id": "b", "name": "b"}]},
    "lists for ids": {"images": [{"id": [5], "file_name": "a.jpg"}]},
    "unhashable notes": {"annotations": [{"image_id": {}, "category_id": 1}]},
}


@pytest.mark.parametrize("change", STRANGE_COCO.values(), ids=STRANGE_COCO.keys())
def test_strange_coco_files_are_refused(change, tmp_path):
    (tmp_path / "annotations").mkdir()
    for part in ("train", "val"):
        (tmp_path / f"{part}2014").mkdir()
        (tmp_path / f"{part}2014" / "a.jpg").touch()
        file = tmp_path / "annotations" / f"instances_{part}2014.json"
        file.write_text(json.dumps({**COCO, **change}))
    with pytest.raises(cr.InputError, match=r"must be a (list|whole number)"):
        cr.data.load(f"coco:{tmp_path}")


def test_xml_is_read_as_utf8_whatever_encoding_it_declares(tmp_path):
    path = tmp_path / "x.arff"
    path.write_text("@relation x\n@attribute Ä {0,1}\n@attribute n numeric\n@data\n1,2\n0,1\n")
    for name in ("latin-1", "no-such-encoding", "utf-7"):
        xml = f'<?xml version="1.0" encoding="{name}"?><labels><label name="Ä"/></labels>'
        path.with_suffix(".xml").write_text(xml, encoding="utf-8")
        assert cr.data.load(path).labels == ["Ä"]


def test_a_nul_in_a_listed_name_is_refused(tmp_path):
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name in ("train", "val"):
        (tmp_path / "ImageSets" / "Main" / f"{name}.txt").write_bytes(b"a\0b\n")
    with pytest.raises(cr.InputError, match="must be the name of a file"):
        cr.data.load(f"voc:{tmp_path}")


def test_an_empty_list_of_images_is_refused(tmp_path):
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name in ("train", "val"):
        (tmp_path / "ImageSets" / "Main" / f"{name}.txt").write_bytes(b" \n")
    with pytest.raises(cr.InputError, match=r"train\.txt must list images"):
        cr.data.load(f"voc:{tmp_path}")


def test_a_cell_that_is_no_text_under_a_doubled_name_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"x,y:dog,y:dog\n1,0,\xff\n")
    with pytest.warns(UserWarning, match="Latin-1"), pytest.raises(cr.InputError, match=r"x\.csv"):
        cr.data.load(path)
