"""Predict tables of any size with an exported model, on this machine or on a cluster."""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from credibly.checks import InputError
from credibly.data.preparation import Preparation, warn_of_position
from credibly.executors import Executor, open_executor
from credibly.predictions import Predictions, Writer
from credibly.predictions.shard import Piece, pieces_of, shard_metadata, shard_name
from credibly.targets import Targets
from credibly.types import Array, FilePath, JsonObject
from credibly.untrusted.budget import read_bytes, worded
from credibly.untrusted.documents import parse_json
from credibly.untrusted.tables import open_parquet, read_parquet
from credibly.workflows.rows import check_paths

if TYPE_CHECKING:
    from credibly.data import Data

_ROWS = 100_000
"""Rows of a shard, about."""

OTHER_TABLES = "For other tables, predict with the run that the model was exported from."


@dataclass(frozen=True)
class WrittenPredictions:
    """A folder of written predictions.

    Attributes:
        out: the folder.
        rows: number of rows.
        files: number of files.
    """

    out: str
    rows: int
    files: int


def predict_dataset(
    model: FilePath,
    data: FilePath,
    out: FilePath,
    *,
    executor: str | Executor = "local",
    **options: Any,
) -> WrittenPredictions:
    """Predict a Parquet table, or a folder of them, with a model that ``credibly export`` wrote.

    Args:
        model: the .onnx file of a run on features; its bytes are sent to workers.
        data: a Parquet file, or a folder of them, as for ``credibly train``: columns of
            features, the labels if they are known, ``id``. Without ids, rows are numbered.
        out: the folder to write, which every worker can access under the same path.
        executor: as for ``cr.evaluate``.
        options: of the reader, such as ``id_column``. The defaults are the options of the
            training data.

    Raises:
        InputError: if the model is not a model of features, or if the columns differ.
    """
    folder, worker = Path(out), open_executor(executor)
    check_paths(worker, folder, [data], ())
    predictor = _Predictor.read(Path(model))
    pieces = _pieces(Path(data))
    with open_parquet(Path(pieces[0].path)) as file:
        lists = any(pa.types.is_nested(field.type) for field in file.schema_arrow)
    if predictor.preparation is None and not lists:  # features are columns with names
        warn_of_position(model, str(data))
    folder.mkdir(parents=True, exist_ok=True)
    rows, count = sum(piece.rows for piece in pieces), len(pieces)
    origin = {"model": Path(model).name, "data": str(data), "rows": rows}

    def work(place: int) -> dict[str, Array]:
        piece = pieces[place]
        table = _read(piece, predictor, options)
        about = {"loss": predictor.loss, "origin": origin, **shard_metadata(place, count, rows)}
        with Writer(folder / shard_name(place, count), predictor.labels, metadata=about) as writer:
            assert table.features is not None  # `read` rejects others
            scores, probabilities = predictor(table.features, piece.path)
            predictions = Predictions.from_arrays(
                probabilities=probabilities,
                labels=predictor.labels,
                scores=scores,
                targets=Targets(table.dense_targets) if table.has_truth else None,
                ids=table.ids,
            )
            writer.append(predictions)
        return {"rows": np.array(len(probabilities))}

    written = worker.each(count, work, str(data))
    return WrittenPredictions(str(out), int(sum(state["rows"] for state in written)), count)


def _read(piece: Piece, model: _Predictor, options: JsonObject) -> Data:
    from credibly.data.loading import load_new

    table = read_parquet(Path(piece.path), range(piece.first_group, piece.last_group))
    if "id" not in table.column_names and "id_column" not in {**model.reader, **options}:
        numbers = range(piece.first_row, piece.first_row + piece.rows)
        table = table.append_column("id", pa.array([str(number) for number in numbers]))
    try:
        rows = load_new(
            table,
            labels=model.labels,
            preparation=model.preparation,
            reader=model.reader,
            **options,
        )
    except InputError as error:
        raise InputError(f"{piece.path}: {error}") from error
    if rows.features is None:
        raise InputError(f"{piece.path} must hold columns of features; it has none.")
    return rows


def _pieces(path: Path) -> list[Piece]:
    files: list[tuple[Path, list[int]]] = []
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        with open_parquet(file, advice=OTHER_TABLES) as opened:
            footer = opened.metadata
        groups = range(footer.num_row_groups)
        files.append((file, [footer.row_group(group).num_rows for group in groups]))
    found = pieces_of(files, _ROWS)
    if not found:
        raise InputError(f"{path} must hold Parquet files with rows; there are none.")
    return found


@dataclass(frozen=True)
class _Predictor:
    """An exported model as bytes, which can be sent to workers."""

    model: bytes
    labels: list[str]
    preparation: Preparation | None
    loss: str
    name: str
    reader: JsonObject

    @classmethod
    def read(cls, path: Path) -> _Predictor:
        model = read_bytes(path, "onnx")
        must = f"{path} must be a model of features that `credibly export` wrote"
        session = _session(model, str(path))
        with worded(must):
            about = session.get_modelmeta().custom_metadata_map.get("credibly")
            inputs = session.get_inputs()
            if about is None or len(inputs) != 1 or len(inputs[0].shape) != 2:
                found = [(each.name, each.shape) for each in inputs]
                raise InputError(f"{must}; it takes {found}.")
            document: JsonObject = parse_json(about, must)
            prepared = Preparation.of_run(document, str(path))
            labels, loss = list(document["labels"]), str(document["loss"])
            reader = dict(document.get("reader") or {})
            return cls(model, labels, prepared, loss, str(path), reader)

    def __call__(self, features: Array, where: str) -> tuple[Array, Array]:
        """Return scores and probabilities."""
        session = _session(self.model, self.name)
        expected = session.get_inputs()[0].shape[1]
        if features.shape[1] != expected:
            raise InputError(
                f"{where} must have the {expected} features that {self.name} was trained on; it "
                f"has {features.shape[1]}."
            )
        with worded(f"{self.name} must run on {where}"):
            parts = [
                session.run(["scores", "probabilities"], {session.get_inputs()[0].name: rows})
                for rows in np.array_split(features, max(1, len(features) // 8192))
            ]
            scores, probabilities = (np.concatenate(each) for each in zip(*parts, strict=True))
        return scores, probabilities


def _session(model: bytes, where: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(
            f"predicting with {where} needs onnxruntime ({error}). Install it with "
            "`pip install 'credibly[export]'`."
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # a task has one core
    with worded(f"{where} must be an ONNX model"), redirect_stdout(StringIO()):
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
