"""For every file that the project reads, a command that reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_world import CASES, QUICK

CUTS = (0.0, 0.35, 0.97, 1.0)
"""Where a file is cut off, as a share of its bytes; the last leaves out one byte."""


@dataclass(frozen=True)
class Reader:
    """A command that reads ``file``."""

    file: str
    command: Callable[[Path, Path], list[str]]

    def __str__(self) -> str:
        return f"{self.command(Path(), Path())[0]} {self.file}"


def _trains(name: str) -> Callable[[Path, Path], list[str]]:
    return lambda world, out: ["train", str(world / name), "--out", str(out / "run"), *QUICK]


def _calibrates(name: str) -> Callable[[Path, Path], list[str]]:
    end = ["--loss", "asl", "--quiet", "--out"]
    return lambda world, out: ["calibrate", str(world / name), *end, str(out / "new.parquet")]


def _predicts(world: Path, out: Path) -> list[str]:
    end = ["--quiet", "--out", str(out / "new.parquet")]
    return ["predict", str(world / "run"), str(world / "rows.npz"), *end]


def _resumes(world: Path, out: Path) -> list[str]:
    return ["train", str(world / "rows.npz"), "--out", str(world / "stopped"), "--resume", *QUICK]


def _searches(world: Path, out: Path) -> list[str]:
    command = ["search", str(world / "predictions.parquet"), "+cat +dog", "--json"]
    return [*command, "--joint", "--joint-from", str(world / "joint.json")]


READERS = [
    Reader("rows.npz", _trains("rows.npz")),
    Reader("rows.csv", _trains("rows.csv")),
    Reader("rows.arff", _trains("rows.arff")),
    Reader("rows.parquet", _trains("rows.parquet")),
    Reader(
        "run.toml",
        lambda world, out: [*_trains("rows.npz")(world, out), "--config", str(world / "run.toml")],
    ),
    Reader("scores.npz", _calibrates("scores.npz")),
    Reader("scores.csv", _calibrates("scores.csv")),
    Reader("predictions.parquet", lambda w, o: ["evaluate", str(w / "predictions.parquet")]),
    Reader("predictions.parquet", CASES["sets"].command),
    Reader("predictions.parquet", CASES["report"].command),
    Reader("predictions.parquet", _searches),
    Reader("joint.json", _searches),
    Reader("run/config.toml", _predicts),
    Reader("run/model.safetensors", _predicts),
    Reader("run/calibration.json", _predicts),
    Reader("run/metrics.json", _predicts),
    Reader("stopped/config.toml", _resumes),
    Reader("stopped/state/step-000000007.safetensors", _resumes),
    Reader("stopped/log.jsonl", _resumes),
    Reader("out/parts/part-00001-of-00003.parquet", CASES["predict"].command),
    Reader("out/compared/comparison.json", CASES["compare"].command),
    Reader("out/compared/runs/bce-seed0/compared.json", CASES["compare"].command),
]


def stop_short(world: Path) -> None:
    """Beside the finished run, one that stopped before its last step; and results half done."""
    stopped = world / "stopped"
    shutil.copytree(world / "run", stopped)
    (stopped / "metrics.json").unlink()
    (stopped / "manifest.json").unlink()
    last = sorted((stopped / "state").iterdir())[-1]
    last.unlink()


def damaged_copy(world: Path, place: Path, reader: Reader) -> Path:
    """A copy of the world to damage: ``out/`` holds what the command has written before."""
    shutil.copytree(world, place)
    path = place / reader.file
    assert path.is_file(), f"{reader} has no such file"
    return path


def cut(path: Path, share: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: min(int(len(whole) * share), len(whole) - 1)])


def complaint(path: Path, code: int | None, stderr: str) -> str | None:
    """What is wrong with how a command refused ``path``; None if nothing is."""
    if code != 2:
        return f"exit code {code}: {stderr}"
    lines = stderr.strip().splitlines()
    if len(lines) != 1 or "Traceback" in stderr:
        return f"more than a sentence: {stderr}"
    if path.name not in stderr:
        return f"{path.name} is not named: {stderr}"
    return None


def is_whole(path: Path) -> bool:
    """Whether a cut file is still one of its kind, as far as anyone can tell."""
    if path.suffix not in (".json", ".jsonl"):
        return path.suffix in (".csv", ".arff", ".toml")
    text = path.read_text(encoding="utf-8")
    try:
        parts = text.splitlines() if path.suffix == ".jsonl" else [text]
        return all(isinstance(json.loads(part), dict) for part in parts)
    except ValueError:
        return False
