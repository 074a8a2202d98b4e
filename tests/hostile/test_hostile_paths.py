"""Whatever reads a file refuses a device, as it does a pipe and a socket: they may never end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import credibly as cr
from credibly.review import ReviewLog, read_queue, read_reviews
from credibly.workflows import check_files, predict_dataset

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
try:
    from fuzz.targets.onnx import ABOUT, exported
finally:
    sys.path.remove(str(ROOT))


def predict_table(path: Path) -> None:
    model = path.with_name("model.onnx")
    model.write_bytes(exported(json.dumps(ABOUT)))
    predict_dataset(model, path, path.with_name("out"))


READERS = {
    "CSV predictions": (".csv", lambda path: cr.Predictions.from_values(path, "probabilities")),
    "CSV data": (".csv", cr.data.load),
    "JSON lines": (".jsonl", cr.data.load),
    "arrays": (".npz", cr.data.load),
    "Parquet data": (".parquet", cr.data.load),
    "predictions": (".parquet", cr.Predictions.read),
    "label sets": (".parquet", cr.plot.set_sizes),
    "label sets to draw": (".csv", cr.plot.set_sizes),
    "a queue": (".csv", read_queue),
    "decisions": (".csv", read_reviews),
    "a log of decisions": (".jsonl", ReviewLog),
    "a log of a run": (".jsonl", cr.train.read_log),
    "a saved map": (".json", cr.Pipeline.read),
    "a map for numpy": (".json", cr.runtime.load),
    "weights": (".safetensors", check_files),
    "an exported model": (".onnx", lambda path: predict_dataset(path, path, path.parent / "out")),
    "a table for an exported model": (".parquet", predict_table),
}


@pytest.mark.parametrize("case", READERS)
def test_a_device_is_no_file(case, tmp_path):
    ending, read = READERS[case]
    path = tmp_path / f"x{ending}"
    path.symlink_to("/dev/null")  # to open it takes no time, as opening a pipe would
    with pytest.raises(cr.InputError, match=rf"x\{ending}.*(it is a device|it is no plain file)"):
        read(path)


@pytest.mark.parametrize("read", [read_queue, read_reviews])
def test_a_queue_that_is_not_utf8_is_named(read, tmp_path):
    (tmp_path / "queue.csv").write_bytes(b"id,label,decision\n\xff,a,1\n")
    with pytest.raises(cr.InputError, match=r"queue\.csv must be UTF-8 text"):
        read(tmp_path / "queue.csv")
