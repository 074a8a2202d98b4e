"""A local Hugging Face dataset: ``save_to_disk`` folders, or Parquet files with its metadata."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa

from credibly.checks import InputError
from credibly.data.class_folders import SPLIT_NAMES, published_parts
from credibly.data.rows import Data
from credibly.data.tables import LIST_NAMES, TableLayout, from_table
from credibly.types import JsonObject
from credibly.untrusted.budget import worded
from credibly.untrusted.documents import field, parse_json, read_json
from credibly.untrusted.tables import read_parquet, read_stream


def read_huggingface(path: Path, layout: TableLayout) -> Data:
    """Read the splits of a dataset as one; ``ClassLabel`` columns give the label names.

    The Arrow files are read directly. The ``datasets`` package is not needed, and no loading script
    is run.
    """
    tables = _splits(path)
    for name in tables:
        if name.lower() not in SPLIT_NAMES:
            raise InputError(
                f"{path}: splits must be called train, validation or test; got {name!r}."
            )
    parts = published_parts({name: SPLIT_NAMES[name.lower()] for name in tables})
    merged, split = [], []
    features: JsonObject = {}
    for name, table in tables.items():
        features = features or _features(table, path / name)
        merged.append(table.replace_schema_metadata())
        split += [parts[name]] * table.num_rows
    with worded(f"{path}: all splits must have the same columns"):
        table = pa.concat_tables(merged)
    labels, column = layout.labels, layout.label_column
    column = column or next((c for c in table.column_names if c.lower() in LIST_NAMES), None)
    if column is not None and column in table.column_names:
        names = _class_names(features.get(column))
        if names:
            table = table.set_column(
                table.column_names.index(column), column, _named(table.column(column), names, path)
            )
            labels = names if labels is None else labels
    layout = dataclasses.replace(layout, labels=labels, label_column=column, images=str(path))
    codes = pa.array(np.array(split, dtype=np.int8))
    table = table.append_column("split", codes) if "split" not in table.column_names else table
    return dataclasses.replace(from_table(table, path, layout), source=f"hf:{path.name}")


def _splits(path: Path) -> dict[str, pa.Table]:
    if (path / "dataset_dict.json").exists():
        names = field(read_json(path / "dataset_dict.json"), "splits", str(path))
        return {str(name): _arrow(path / str(name), path) for name in names}
    if (path / "state.json").exists():
        return {"train": _arrow(path, path)}
    files = sorted([*path.glob("*.parquet"), *path.glob("data/*.parquet")])
    if not files:
        raise InputError(
            f"{path} must be a folder written by `save_to_disk`, or hold Parquet files such as "
            "data/train-00000-of-00001.parquet."
        )
    found: dict[str, list[Path]] = {}
    for file in files:
        found.setdefault(file.stem.partition("-")[0], []).append(file)
    return {name: pa.concat_tables(map(read_parquet, each)) for name, each in found.items()}


def _arrow(folder: Path, root: Path) -> pa.Table:
    if folder.resolve() != root.resolve() and folder.resolve().parent != root.resolve():
        raise InputError(f"{root}: splits must be folders inside it; got {str(folder)!r}.")
    state = read_json(folder / "state.json")
    if state.get("_indices_files"):
        raise InputError(
            f"{folder} stores an index that reorders its rows. Call `flatten_indices()` and save "
            "it again."
        )
    tables = []
    for item in field(state, "_data_files", str(folder / "state.json")):
        name = str(field(item, "filename", str(folder / "state.json")))
        if Path(name).name != name:
            raise InputError(
                f"{folder / 'state.json'}: data files must be beside it; got {name!r}."
            )
        if not (folder / name).exists():
            raise InputError(f"{folder / name} is missing; {folder / 'state.json'} names it.")
        tables.append(read_stream(folder / name))
    return pa.concat_tables(tables)


def _features(table: pa.Table, folder: Path) -> JsonObject:
    info = folder / "dataset_info.json"
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    if metadata is not None:
        must = f"{folder}: the dataset's metadata must be JSON"
        with worded(must):
            return parse_json(metadata.decode(), must)["info"]["features"]
    return read_json(info).get("features", {}) if info.exists() else {}


def _class_names(feature: object) -> list[str] | None:
    """Return the names of a ClassLabel, or of a list of them."""
    if isinstance(feature, list) and feature:
        feature = feature[0]
    if isinstance(feature, dict) and isinstance(feature.get("feature"), (dict, list)):
        return _class_names(feature["feature"])
    names = feature.get("names") if isinstance(feature, dict) else None
    return [str(name) for name in names] if names else None


def _named(column: pa.ChunkedArray, names: list[str], path: Path) -> pa.Array:
    """Return class numbers as lists of names. −1 and empty cells are unknown."""
    rows: list[list[str] | None] = []
    for row, cell in enumerate(column.to_pylist()):
        numbers = cell if isinstance(cell, list) else [cell]
        if cell is None or numbers == [-1]:
            rows.append(None)
            continue
        if not all(isinstance(n, int) and 0 <= n < len(names) for n in numbers):
            raise InputError(f"{path}, row {row}: classes must lie below {len(names)}; got {cell}.")
        rows.append([names[n] for n in numbers])
    return pa.array(rows, type=pa.list_(pa.string()))
