"""Records of finished units: one JSON line each, one file per experiment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(folder: Path) -> dict[str, Record]:
    """Return the records of ``folder`` by the id of their unit."""
    files = sorted(folder.glob("*.jsonl"))
    lines = (line for path in files for line in path.read_bytes().splitlines())
    return {record["id"]: record for record in map(json.loads, lines)}


def append(folder: Path, record: Record) -> None:
    """Add a record to the file of its experiment.

    The file is replaced by one with a line more, so that no process ever sees half a record,
    whenever this one is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['experiment']}.jsonl"
    before = path.read_bytes() if path.exists() else b""
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    write(path, before + line)


def write(path: Path, content: bytes) -> None:
    """Write a file that is whole or not there."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
