"""Every writer of the project as a function, to disturb it at each of its operations in turn.

    python tests/faults/fault_writers.py [--seeds 5] [--record FILE]

Each attempt runs in a forked process and takes milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fault_storage import FailingDisk, PowerLoss

from credibly import Predictions, decide, retrieve
from credibly.files import write_json
from credibly.predictions import Writer
from credibly.predictions.shard import shard_metadata, shard_name
from credibly.train import Callback
from credibly.train.run_folder import (
    Checkpoint,
    Log,
    read_tensors,
    write_checkpoint,
    write_toml,
)
from credibly.workflows import write_sets

LOST_POWER = 77
ABSORBED = 3  # an operation failed that the writer can do without
LABELS = ["dog", "cat", "[odd] name"]


def _rows(version: int, first: int = 0) -> Predictions:
    rng = np.random.default_rng(version)
    ids = [str(first + row) for row in range(8)]
    targets = rng.integers(0, 2, (8, 3))
    return Predictions.from_arrays(
        probabilities=rng.random((8, 3)), targets=targets, labels=LABELS, ids=ids
    )


def _shards(folder: Path, version: int) -> None:
    for index in range(3):
        path = folder / "deep" / "parts" / shard_name(index, 3)
        with Writer(path, LABELS, metadata=shard_metadata(index, 3, 24)) as file:
            file.append(_rows(version, 8 * index))


def _checkpoints(folder: Path, version: int) -> None:
    for step in range(1, 4):
        tensors = {"weight": torch.full((4,), float(10 * version + step))}
        write_checkpoint(folder / "state", step, Checkpoint(tensors, {"step": step}))


def _log(folder: Path, version: int) -> None:
    log = Log(folder, Callback())
    for epoch in (1, 2, 3):
        log.on_epoch({"epoch": epoch, "loss": float(version)})


def _joint(folder: Path, version: int) -> None:
    rows = _rows(version)
    assert rows.targets is not None
    retrieve.Joint().fit(rows.probabilities, rows.targets, rows.labels).write(folder / "joint.json")


def _sets(name: str) -> Callable[[Path, int], None]:
    def write(folder: Path, version: int) -> None:
        source = folder.parent / f"source-{version}.parquet"
        write_sets(source, decide.TopK(version + 1), folder / name)

    return write


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "JSON": lambda folder, version: write_json(folder / "a.json", {"version": version}),
    "configuration": lambda folder, version: write_toml(
        folder / "config.toml", {"settings": {"seed": version}}
    ),
    "log": _log,
    "checkpoints": _checkpoints,
    "predictions": lambda folder, version: _rows(version).write(folder / "p.parquet"),
    "parts": _shards,
    "joint": _joint,
    "sets, Parquet": _sets("sets.parquet"),
    "sets, CSV": _sets("sets.csv"),
}


@dataclass
class Count:
    """Attempts on one writer, and what was wrong after them."""

    faults: int = 0
    wrong: tuple[str, ...] = ()


def content(folder: Path) -> dict[str, bytes]:
    """Return the files under their final names."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def disturb(name: str, kind: str, place: Path, seeds: int) -> Count:
    """Let power be lost ("power") or an operation fail ("error") at every operation of a writer."""
    write, count = WRITERS[name], Count()
    place.mkdir(parents=True)
    for version in (0, 1):
        _rows(version).write(place / f"source-{version}.parquet")
    old, new = place / "old", place / "new"
    for folder, versions in ((old, (0,)), (new, (0, 1))):
        folder.mkdir()
        for version in versions:
            write(folder, version)
    for seed in range(seeds):
        at = 1
        while True:
            out = place / "out"
            shutil.copytree(old, out)
            code = _attempt(write, kind, out, place / "after", at, seed)
            wrong = _judge(code, place, content(old), content(new))
            count.faults += code != 0
            if not wrong and code != 0:
                write(out, 1)  # the next writer makes all well, and leaves nothing behind
                hidden = [path.name for path in out.rglob(".*") if path.name.endswith(".part")]
                wrong = [f"left over: {hidden}"] if hidden else []
                wrong += ["another result"] if content(out) != content(new) else []
            count.wrong += tuple(f"{name}, {kind} {at}, seed {seed}: {each}" for each in wrong)
            shutil.rmtree(out)
            if code in (0, LOST_POWER + 1):
                break
            at += 1
    return count


def _attempt(
    write: Callable[[Path, int], None], kind: str, out: Path, after: Path, at: int, seed: int
) -> int:
    """Return 0 if nothing failed, 2 for an error, 3 for one that did no harm, 77 for a power loss.

    78 is a power loss after the end.
    """
    shutil.rmtree(after, ignore_errors=True)
    child = os.fork()
    if child == 0:
        _write_disturbed(write, kind, out, after, at, seed)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in (LOST_POWER, LOST_POWER + 1):
        shutil.rmtree(out)
        shutil.move(after, out)
    return code


def _write_disturbed(
    write: Callable[[Path, int], None], kind: str, out: Path, after: Path, at: int, seed: int
) -> None:
    try:
        if kind == "error":
            disk = FailingDisk(out, at)
            disk.arm()
            write(out, 1)
            os._exit(0 if disk.left > 0 else ABSORBED)
        power = PowerLoss(out, after, at, seed)
        power.arm()
        write(out, 1)
        power.code = LOST_POWER + 1
        power.lose_power()
    except OSError:
        os._exit(2)
    finally:
        os._exit(1)


def _judge(code: int, place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> list[str]:
    """Return what is wrong with the files as they are now."""
    if code not in (0, 2, ABSORBED, LOST_POWER, LOST_POWER + 1):
        return [f"ended with {code}"]
    found = content(place / "out")
    if code in (0, ABSORBED, LOST_POWER + 1):
        return [] if found == new else ["a finished result was lost"]
    wrong = []
    for name, value in found.items():
        if value not in (old.get(name), new.get(name)) and not _between(place / "out" / name):
            wrong.append(f"{name} is neither the old file nor the new one")
    return wrong + [f"{name} is gone" for name in old.keys() - found.keys() - _passing(old)]


def _between(path: Path) -> bool:
    """Return whether a file is a whole one of the steps between: a log, or a checkpoint."""
    if path.name == "log.jsonl":
        return all(json.loads(line)["loss"] in (0.0, 1.0) for line in path.read_text().splitlines())
    if path.suffix == ".safetensors":
        return read_tensors(path).values["step"] in (1, 2, 3)
    return False


def _passing(old: dict[str, bytes]) -> set[str]:
    return {name for name in old if name.endswith(".safetensors")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="random draws per power loss")
    parser.add_argument("--record", type=Path, help="where the counts go")
    given = parser.parse_args()
    record: dict[str, dict[str, dict[str, int]]] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, seeds in (("error", 1), ("power", given.seeds)):
            for name in WRITERS:
                count = disturb(name, kind, Path(folder) / kind / name, seeds)
                numbers = {"faults": count.faults, "wrong": len(count.wrong)}
                record.setdefault(f"{kind}, in a writer", {})[name] = numbers
                wrong += count.wrong
                line = f"{kind:<6} {name:<14} {count.faults:>4} times, {len(count.wrong)} wrong"
                print(line, flush=True)
    if given.record is not None:
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
