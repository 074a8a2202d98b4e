"""Checksums and ``credibly check``: any changed byte is found, and what is wrong is said."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from credibly import InputError, Predictions, checksums, decide, load, write_sets
from credibly.cli import main
from credibly.data import synthetic
from credibly.predictions import Writer
from credibly.train import Network, fit, recipe
from credibly.workflows import check_files

GOLDEN = Path(__file__).parents[1] / "compatibility/golden"


def some_rows(first: int = 0, count: int = 6) -> Predictions:
    rng = np.random.default_rng(first)
    return Predictions.from_arrays(
        probabilities=rng.random((count, 3)),
        targets=rng.integers(0, 2, (count, 3)),
        # Names that look like a checksum do not confuse it.
        labels=["dog", checksums.PLACEHOLDER, "credibly.checksum"],
        ids=[f"row{first + row}" for row in range(count)],
    )


@pytest.fixture
def predictions(tmp_path):
    some_rows().write(tmp_path / "predictions.parquet")
    return tmp_path / "predictions.parquet"


@pytest.fixture
def parts(tmp_path):
    for index in range(3):
        write_part(tmp_path / "parts", index, some_rows(6 * index))
    return tmp_path / "parts"


def write_part(folder, index, rows):
    """Write one of three parts of 18 rows; return its path."""
    path = folder / f"part-{index:05d}-of-00003.parquet"
    about = {"shard": {"index": index, "count": 3, "rows": 18}}
    with Writer(path, rows.labels, metadata=about) as file:
        file.append(rows)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("integrity") / "run"
    settings = recipe(model="linear", epochs=1, checkpoint_seconds=0)
    fit(synthetic(60, num_features=3), settings, folder=folder)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def tensors(run):
    return run / "model.safetensors"


@pytest.mark.parametrize("kind", ["predictions", "tensors"])
def test_every_changed_byte_is_found(kind, request):
    path = request.getfixturevalue(kind)
    assert checksums.verify(path) == "sound"
    content = path.read_bytes()
    step = max(1, len(content) // 400)
    marks = [content.rfind(b"sha256-of-file=") + i for i in range(-30, 90)]
    for place in sorted(
        {*range(0, len(content), step), *marks, *range(len(content) - 12, len(content))}
    ):
        if not 0 <= place < len(content):
            continue
        damaged = bytearray(content)
        damaged[place] ^= 0x04
        path.write_bytes(damaged)
        try:
            sound = checksums.verify(path) == "sound"
        except InputError:
            sound = False
        assert not sound, place
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert not check_files(path).sound
    path.write_bytes(content + b"x")
    assert not check_files(path).sound


def test_labels_that_look_like_a_checksum_do_no_harm(tmp_path):
    labels = ["credibly.checksum", checksums.PLACEHOLDER]
    rows = Predictions.from_arrays(probabilities=[[0.5, 0.25]], labels=labels)
    rows.write(tmp_path / "odd.parquet")
    assert Predictions.read(tmp_path / "odd.parquet").labels == labels
    assert check_files(tmp_path / "odd.parquet").sound


def test_flipped_weights_are_refused_when_they_are_read(run, tensors):
    assert load(run).labels
    content = bytearray(tensors.read_bytes())
    content[-3] ^= 1
    tensors.write_bytes(content)
    with pytest.raises(InputError, match="is damaged: the file was changed after it was written"):
        load(run)


def test_a_checksum_is_the_same_for_the_same_rows(tmp_path):
    for name in ("one.parquet", "two.parquet"):
        some_rows().write(tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_sound_files_are_said_to_be_sound(predictions, parts, run, tmp_path, capsys):
    sets = ["sets", str(predictions), "--average-size", "1", "--quiet"]
    assert main([*sets, "--out", str(tmp_path / "sets.parquet")]) == 0
    for path in (predictions, parts, run, tmp_path / "sets.parquet", run / "metrics.json"):
        assert main(["check", str(path)]) == 0, capsys.readouterr()
        assert "nothing is wrong" in capsys.readouterr().out
        assert main(["check", str(path), "--quiet"]) == 0
        assert capsys.readouterr().out == ""
        assert main(["check", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["sound"]
        kinds = {each["checksum"] for each in found["files"]}
        assert kinds <= {"sound", ""}
        assert "sound" in kinds or path.suffix == ".json"


def test_files_of_earlier_versions_are_read_and_said_to_have_no_checksum(tmp_path):
    old = [GOLDEN / "predictions-1.0.parquet", GOLDEN / "run-1.0", GOLDEN / "parts-0.1"]
    for path in old:
        found = check_files(path)
        assert found.sound, found
        assert {each.checksum for each in found.files} <= {"none", ""}
        assert any(each.checksum == "none" for each in found.files)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit in a part": ("parts", "part-00001-of-00003.parquet", _flip, "part-00001"),
    "a missing part": ("parts", "part-00002-of-00003.parquet", Path.unlink, "must hold all 3"),
    "a cut part": ("parts", "part-00000-of-00003.parquet", lambda p: p.write_bytes(b"PAR1"), "00"),
    "flipped weights": ("run", "model.safetensors", _flip, "model.safetensors"),
    "flipped predictions": ("run", "predictions.parquet", _flip, "predictions.parquet"),
    "a cut configuration": ("run", "config.toml", lambda p: p.write_text("[data"), "config.toml"),
    "no JSON": ("run", "calibration.json", lambda p: p.write_text("{"), "calibration.json"),
    "another calibration": (
        "run",
        "calibration.json",
        lambda p: p.write_text('{"calibrator": {"name": "unheard"}}'),
        "calibration.json was changed after training",
    ),
    "a damaged log": ("run", "log.jsonl", lambda p: p.write_text("x\n"), "log.jsonl, line 1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_named(damage, request, capsys):
    fixture, name, spoil, said = DAMAGE[damage]
    folder = request.getfixturevalue(fixture)
    spoil(folder / name)
    assert main(["check", str(folder)]) == 1
    out, error = capsys.readouterr()
    assert said in out.replace("\n", "")
    assert error == ""
    assert main(["check", str(folder), "--quiet"]) == 1
    assert said in capsys.readouterr().out.replace("\n", "")


def test_equal_ids_in_two_parts_are_found(parts):
    write_part(parts, 2, some_rows(0))
    found = check_files(parts)
    assert not found.sound
    assert "row0" in str(found.files[-1].problem)


def test_what_cannot_be_checked_is_one_sentence(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    for path in ("notes.txt", ".", "missing.parquet"):
        assert main(["check", str(tmp_path / path)]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main(["check", "/dev/zero"]) == 2
    assert "device" in capsys.readouterr().err


def test_memory_that_ends_is_not_called_damage(predictions, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def without_memory(*arguments, **settings):
        raise pa.ArrowMemoryError("malloc of size 6016 failed")

    monkeypatch.setattr(pq, "ParquetFile", without_memory)
    with pytest.raises(MemoryError):
        check_files(predictions)


class OddTensors(torch.nn.Module):
    """A network whose state has tensors that safetensors refuses as they are."""

    def __init__(self) -> None:
        super().__init__()
        row, image = torch.arange(20.0), torch.arange(96.0).view(2, 3, 4, 4)
        self.linear = self.tied = torch.nn.Linear(3, 20)
        self.register_buffer("slice", row[3:7])
        self.register_buffer("slice that overlaps", row[5:9])
        self.register_buffer("transposed", torch.arange(12.0).view(3, 4).T)
        self.register_buffer("channels last", image.to(memory_format=torch.channels_last))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("number", torch.tensor(3.0))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.linear(rows)


def test_tensors_of_any_layout_are_read_as_written(tmp_path):
    data, network = synthetic(60, num_features=3), OddTensors()
    fit(data, Network(model=network, epochs=1), folder=tmp_path / "run")
    other = OddTensors()
    load(tmp_path / "run", model=other)
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=0)


def test_label_sets_with_reviews_are_checked_as_sets(tmp_path):
    rates = np.random.default_rng(0).random((20, 2))
    Predictions.from_arrays(probabilities=rates, labels=["a", "b"]).write(tmp_path / "p.parquet")
    rule = decide.Cost(miss=5, review=0.5)
    write_sets(tmp_path / "p.parquet", rule, tmp_path / "sets.parquet")
    assert check_files(tmp_path / "sets.parquet").sound


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        pa.ArrowInvalid("malloc of size 64 failed: out of memory"),
        OSError("Failed to launch worker thread: can't start new thread"),
    ],
)
def test_lack_of_memory_is_no_damage(predictions, monkeypatch, capsys, error):
    def without_memory(*given, **options):
        raise error

    monkeypatch.setattr(pq, "ParquetFile", without_memory)
    with pytest.raises(MemoryError):
        check_files(predictions)
    assert main(["check", str(predictions)]) == 2
    assert "not enough memory" in capsys.readouterr().err
