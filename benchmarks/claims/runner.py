"""Runs in processes. Each finished run is a line of ``results/DATA.jsonl``; none is run twice."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.claims.cells import Cell
from credibly.child_processes import end_with_parent

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.train import Run

RESULTS = Path(__file__).parent / "results"
Record = dict[str, Any]


class Book:
    """The finished runs in a folder."""

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.records: dict[str, Record] = {}
        for path in sorted(folder.glob("*.jsonl")):
            text = path.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):  # a process was killed while it wrote
                path.write_text(text + "\n", encoding="utf-8")
            for line in text.splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                self.records[key_of(record)] = record

    def add(self, record: Record) -> None:
        self.records[key_of(record)] = record
        name = record["data"].replace(":", "-").replace("@", "-")
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def get(self, cell: Cell) -> Record | None:
        return self.records.get(cell.key)


def key_of(record: Record) -> str:
    return Cell.of(record["data"], record["settings"], record["seed"], record["trial"]).key


def run_all(cells: Iterable[Cell], book: Book, jobs: int) -> None:
    """Run what is not in the book yet, data set by data set so that workers read each once."""
    missing = [cell for cell in dict.fromkeys(cells) if book.get(cell) is None]
    if not missing:
        return
    done, start = 0, time.monotonic()
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent) as pool:
        waiting = {pool.submit(perform, cell): cell for cell in missing}
        try:
            for future in as_completed(waiting):
                record = future.result()
                book.add(record)
                done += 1
                spent = time.monotonic() - start
                left = spent / done * (len(missing) - done)
                loss = record["settings"].get("loss", "bce")
                print(
                    f"{done}/{len(missing)} {record['data']} {loss} seed {record['seed']} "
                    f"{record['seconds']:.0f} s; about {left / 60:.0f} min left",
                    flush=True,
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def trained(cell: Cell, folder: str) -> tuple[Run, Data]:
    """Train as ``credibly train`` does; return the run and all of its rows."""
    import numpy as np
    import torch

    from benchmarks.claims import sets
    from credibly.data.splits import TEST
    from credibly.train import fit
    from credibly.train.recipes import from_table

    torch.set_num_threads(1)
    data = sets.rows(cell.data, cell.seed)
    given: dict[str, Any] = {
        name: os.path.expandvars(value) if isinstance(value, str) else value
        for name, value in cell.settings
    }
    recipe, _ = from_table({**given, "split_seed": cell.seed}, "the cell")
    seen = data.take(np.flatnonzero(data.split != TEST))
    return fit(seen, recipe, folder=folder, seed=cell.seed), data


def perform(cell: Cell) -> Record:
    """Train in a folder that is thrown away, and keep the figures."""
    from benchmarks.claims import measure
    from credibly import __version__

    start = time.process_time()
    record: Record = {
        "data": cell.data,
        "settings": dict(cell.settings),
        "seed": cell.seed,
        "trial": cell.trial,
        "command": cell.command,
        "version": __version__,
    }
    folder = tempfile.mkdtemp(prefix="credibly-claims-")
    try:
        run, data = trained(cell, folder)
        parts = ("calibration",) if cell.trial else ("calibration", "test")
        scores = {part: run.scores(data.part(part)) for part in parts}
        record["held_out"] = measure.held_out(run, data, scores)
        if not cell.trial:
            record["test"] = measure.tested(run, data, scores)
    except Exception as error:  # a method that fails is a result, not the end of the others
        record["failed"] = f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record["seconds"] = round(time.process_time() - start, 1)
    return record
