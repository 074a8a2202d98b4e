"""Run commands and read what they wrote, without timings, paths and versions."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

LEFT_OUT = re.compile(
    r"seconds|time|version|path|file$|files_written|folder|^out$|memory|throughput|sql|created|_at$"
)
LONGEST = 8  # a longer list of numbers is kept as its length, ends and sums

Calls = Iterator[tuple[str, Callable[[], Any]]]


class World:
    """A folder to work in, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def command(self, *argv: object) -> Any:
        """Run one command with ``--json`` and return what it printed."""
        from credibly.cli import main

        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = main([*map(str, argv), "--json"])
        if code != 0:
            return {"exit": code, "error": tidy(errors.getvalue().strip(), self.folder)}
        return tidy(json.loads(out.getvalue()), self.folder)

    def files(self, *names: str) -> dict[str, Any]:
        """Hashes of files, byte for byte."""
        return {name: hashlib.sha256((self / name).read_bytes()).hexdigest() for name in names}


def tidy(value: Any, folder: Path | None = None, key: str = "") -> Any:
    """Return a document as JSON holds it, short, without what changes from run to run."""
    if isinstance(value, Mapping):
        return {
            str(name): tidy(each, folder, str(name))
            for name, each in value.items()
            if not LEFT_OUT.search(str(name).lower())
        }
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        return digest(value) if value.dtype.kind in "fiub" else tidy(value.tolist(), folder)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        if len(value) > LONGEST and all(isinstance(each, int | float) for each in value):
            return digest(np.array(value))
        if len(value) > 5 * LONGEST:
            text = json.dumps([tidy(each, folder) for each in value], sort_keys=True)
            return {"length": len(value), "first": tidy(value[:3], folder), "of all": numbers(text)}
        return [tidy(each, folder) for each in value]
    if isinstance(value, str) and folder is not None:
        return value.replace(str(folder), "FOLDER")
    return value


def digest(values: np.ndarray) -> Any:
    """Return an array as it is where it is short, else its shape, ends and two sums."""
    if values.size <= LONGEST:
        return values.astype(float).tolist() if values.dtype.kind == "f" else values.tolist()
    flat = values.astype(float).ravel()
    finite = np.where(np.isfinite(flat), flat, 0.0)
    return {
        "shape": list(values.shape),
        "finite": int(np.isfinite(flat).sum()),
        "first": flat[:2].tolist(),
        "last": float(flat[-1]),
        "sum": float(finite.sum()),
        # An order that differs gives another value.
        "weighted": float(finite @ (1 + np.arange(flat.size) % 97) / flat.size),
    }


def numbers(text: str) -> list[float | str]:
    """Return the sum of the numbers of a JSON text, and a hash of the rest."""
    pattern = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
    total = sum(float(found) for found in pattern.findall(text))
    return [total, hashlib.sha256(pattern.sub("#", text).encode()).hexdigest()[:16]]


def parquet(path: Path) -> dict[str, Any]:
    """Return the columns of a Parquet file in short, those of all labels together."""
    import pyarrow.parquet as pq

    together: dict[str, list[Any]] = {}
    for name, column in pq.read_table(path).to_pydict().items():
        together.setdefault(name.split(":")[0], []).append(column)
    short: dict[str, Any] = {}
    for name, columns in together.items():
        try:
            short[name] = digest(np.array(columns, dtype=float))
        except (TypeError, ValueError):
            short[name] = numbers(json.dumps(columns))
    return short
