"""Predict many rows. Several processes can write shards, each shard once."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from credibly.checks import InputError, at_least, choice
from credibly.files import atomic_path, sweep
from credibly.train.run import CALIBRATION, MODEL, Run
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.predictions import Predictions

CHUNK = 16_384
FORMATS = ("predictions", "wide", "lists")


def predict_to(
    run: Run,
    rows: Data,
    out: str | Path,
    *,
    shards: int = 1,
    process: int = 0,
    processes: int = 1,
    format: str = "predictions",
    advance: Callable[[float], None] = lambda rows: None,
) -> list[Path]:
    """Predict ``rows`` into one file, or into a folder with one file per shard.

    Shard ``i`` is the ``i``-th block of rows. Process ``p`` of ``processes`` writes the shards p,
    p + processes, …. A shard whose file exists is skipped, so you can continue a stopped job by
    running it again. Files of another run or of other rows are an error.

    Args:
        run: from ``load``.
        rows: the rows to predict.
        out: a path ending in ``.parquet`` or ``.csv`` for one file; both have the same columns.
            Any other path is a folder of shards, which can be read like one file.
        shards: number of shards.
        process, processes: the number of this process, and how many there are.
        format: ``"predictions"``. For a ``.csv`` file also ``"wide"``: ids and one column of
            probabilities per label; or ``"lists"``: ids and the labels selected by the run's
            rule, joined as in the training file.
        advance: called with the number of rows that are done.

    Returns:
        The files that this process wrote.
    """
    from credibly.predictions.shard import shard_metadata, shard_name

    out = Path(out)
    rows = run.check(rows)
    at_least("shards", shards, 1)
    choice("format", format, FORMATS)
    if format != "predictions" and out.suffix != ".csv":
        raise InputError(f"`format={format}` writes a .csv file; got {out}.")
    if out.suffix in (".parquet", ".csv"):
        if shards > 1 or processes > 1:
            raise InputError(
                f"{shards} shards by {processes} processes need a folder; got the file {out}. "
                f"Use --out {out.with_suffix('')}, which reads as one file."
            )
        if out.suffix == ".csv" and run.keeps_top_labels:
            raise InputError(
                f"{run.title} writes lists of the most probable labels, which a CSV file cannot "
                f"hold. Use --out {out.with_suffix('.parquet')}."
            )
        if format != "predictions":
            _write_rows(run, rows, out, format, advance)
        elif out.suffix == ".csv":
            _write_csv(run, rows, out, advance)
        else:
            _write(run, rows, out, {}, advance)
        return [out]
    origin = {"run": run_hash(run), "rows": rows.fingerprint(), "shards": shards}
    sweep(out)  # once: existing shards are not written again, so nothing else sweeps them
    written = []
    for shard, index in enumerate(np.array_split(np.arange(len(rows)), shards)):
        part = out / shard_name(shard, shards)
        if shard % processes != process or not len(index) or _is_there(part, origin):
            continue
        place = shard_metadata(shard, shards, len(rows))
        _write(run, rows.take(index), part, {"origin": origin, **place}, advance)
        written.append(part)
    return written


def run_hash(run: Run) -> str:
    """Return a hash of everything that determines a run's predictions: weights and calibration."""
    if run.folder is None:
        raise InputError("predictions in shards need the folder of the run; train with `folder=…`.")
    digest = hashlib.sha256()
    for name in (MODEL, CALIBRATION):
        with (run.folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _is_there(part: Path, origin: JsonObject) -> bool:
    from credibly.predictions import Dataset

    if not part.exists():
        return False
    if Dataset(part).metadata.get("origin") != origin:
        raise InputError(
            f"{part} holds predictions of another run or of other rows. Remove it, or choose "
            "another --out."
        )
    return True


def _predicted(
    run: Run, rows: Data, truth: bool, advance: Callable[[float], None]
) -> Iterator[Predictions]:
    for start in range(0, len(rows), CHUNK):
        chunk = rows.take(np.arange(start, min(start + CHUNK, len(rows))))
        yield run.predicted(chunk, truth)
        advance(len(chunk))


def _write_rows(
    run: Run, rows: Data, path: Path, format: str, advance: Callable[[float], None]
) -> None:
    """Write ids with probabilities or with label sets, the formats of many competitions."""
    read = run.data.get("reader", {})  # version 0.2 did not write this field
    spaces = any(" " in label for label in run.labels)
    separator = read.get("separator", "none")  # "none": each cell of the training file is one name
    separator = ("|" if spaces else " ") if separator == "none" else separator
    titles = run.labels if format == "wide" else [read.get("label_column", "labels")]
    name = read.get("id_column") or read.get("image_column") or "id"
    with atomic_path(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([name, *titles])
        for found in _predicted(run, rows, False, advance):
            cells = [[f"{each:.6g}" for each in row] for row in found.probabilities]
            if format == "lists":
                names = np.array(run.labels, dtype=object)
                sets = run.pipeline.rule.predict(found.probabilities)
                cells = [[separator.join(names[row])] for row in sets]
            table.writerows([key, *row] for key, row in zip(found.ids, cells, strict=True))


def _write_csv(run: Run, rows: Data, path: Path, advance: Callable[[float], None]) -> None:
    """Write the columns of a predictions file as CSV."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    with TemporaryDirectory() as folder:
        whole = Path(folder) / "predictions.parquet"
        _write(run, rows, whole, {}, advance)
        with (
            atomic_path(path) as beside,
            pq.ParquetFile(whole) as file,
            pyarrow.csv.CSVWriter(beside, file.schema_arrow) as writer,
        ):
            for batch in file.iter_batches():
                writer.write_batch(batch)


def _write(
    run: Run, rows: Data, path: Path, extra: JsonObject, advance: Callable[[float], None]
) -> None:
    from credibly.predictions import Writer

    targets = rows.targets
    soft = isinstance(targets, np.ndarray) and bool(((targets > 0) & (targets < 1)).any())
    with Writer(path, run.labels, metadata={**run.metadata(), **extra}, soft=soft) as writer:
        for found in _predicted(run, rows, rows.has_truth, advance):
            writer.append(found)
