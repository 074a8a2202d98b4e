"""Small files of every kind the project reads, and the commands whose faults are tried on them."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from credibly.cli import main

LABELS = ["cat", "dog", "dining table", "never there"]
QUICK = ["--model", "linear", "--epochs", "2", "--batch-size", "24", "--checkpoint-seconds", "0"]
QUICK += ["--quiet", "--json"]


@dataclass(frozen=True)
class Case:
    """A command that writes into a folder.

    ``begin`` puts into the folder what stands there before: results of other settings, which a
    fault must leave as they are until the new ones are whole.
    """

    command: Callable[[Path, Path], list[str]]
    begin: Callable[[Path, Path], list[str]] | None = None


def _train(world: Path, out: Path) -> list[str]:
    return ["train", str(world / "rows.npz"), "--out", str(out / "run"), "--resume", *QUICK]


def _predict(world: Path, out: Path) -> list[str]:
    command = ["predict", str(world / "run"), str(world / "rows.npz"), "--out", str(out / "parts")]
    return [*command, "--shards", "3", "--quiet", "--json"]


def _calibrate(world: Path, out: Path, method: str = "affine") -> list[str]:
    command = ["calibrate", str(world / "scores.npz"), "--loss", "asl", "--method", method]
    return [*command, "--out", str(out / "calibrated.parquet"), "--quiet"]


def _sets(world: Path, out: Path, size: str = "1.5") -> list[str]:
    command = ["sets", str(world / "predictions.parquet"), "--average-size", size]
    return [*command, "--out", str(out / "sets.parquet"), "--quiet"]


def _compare(world: Path, out: Path) -> list[str]:
    command = ["compare", str(world / "rows.npz"), "--losses", "bce", "--seeds", "2"]
    return [*command, "--out", str(out / "compared"), "--conditions", "2", *QUICK]


def _report(world: Path, out: Path, resamples: str = "6") -> list[str]:
    command = ["report", str(world / "predictions.parquet"), "--resamples", resamples]
    return [*command, "--out", str(out / "report.html"), "--quiet"]


def _train_pictures(world: Path, out: Path) -> list[str]:
    command = ["train", str(world / "pictures.npz"), "--out", str(out / "run"), "--resume"]
    command += ["--model", "cnn", "--hidden", "4", "--epochs", "2", "--batch-size", "16"]
    return [*command, "--checkpoint-seconds", "0", "--workers", "2", "--quiet", "--json"]


def _joint(world: Path, out: Path, seed: str = "1") -> list[str]:
    command = ["joint", "fit", str(world / "predictions.parquet"), "--components", "1,2"]
    return [*command, "--seed", seed, "--out", str(out / "joint.json"), "--quiet"]


def _export(world: Path, out: Path) -> list[str]:
    return ["export", str(world / "run"), "--out", str(out / "run.onnx"), "--json"]


CASES = {
    "train": Case(_train),
    "train --workers 2": Case(_train_pictures),
    "compare --jobs 2": Case(lambda world, out: [*_compare(world, out), "--jobs", "2"]),
    "joint": Case(_joint, lambda world, out: _joint(world, out, "0")),
    "export": Case(_export),
    "predict": Case(_predict),
    "calibrate": Case(_calibrate, lambda world, out: _calibrate(world, out, "temperature")),
    "sets": Case(_sets, lambda world, out: _sets(world, out, "1")),
    "compare": Case(_compare),
    "report": Case(_report, lambda world, out: _report(world, out, "5")),
}


def make_world(world: Path) -> Path:
    """Rows, scores, a run, predictions and a joint, in every format."""
    from credibly import Predictions, retrieve

    world.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    features = generator.normal(size=(180, 5)).astype(np.float32)
    pull = generator.normal(size=(5, 4))
    scores = (features @ pull - 1 + generator.normal(size=(180, 4))).astype(np.float32)
    targets = (scores + generator.normal(size=(180, 4)) > 0).astype(np.int8)
    targets[:, -1] = 0
    targets[:8] = 0
    targets[8:14] = -1
    split = np.array([0, 0, 0, 1, 1, 2])[np.arange(180) % 6]
    names = np.array(LABELS)
    np.savez(world / "rows.npz", features=features, targets=targets, labels=names, split=split)
    np.savez(world / "scores.npz", scores=scores, targets=targets, labels=names)
    _write_text(world, features, scores, targets)
    pictures = generator.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    np.savez(world / "pictures.npz", images=pictures, targets=targets[60:120], labels=names)
    (world / "run.toml").write_text('loss = "bce"\nmodel = "linear"\nepochs = 2\n')
    train = ["train", str(world / "rows.npz"), "--out", str(world / "run"), *QUICK]
    assert main(train) == 0
    found = Predictions.read(world / "run/predictions.parquet")
    found.write(world / "predictions.parquet")
    assert found.targets is not None
    joint = retrieve.Joint().fit(found.probabilities, found.targets, found.labels)
    joint.write(world / "joint.json")
    return world


def _write_text(world: Path, features: np.ndarray, scores: np.ndarray, targets: np.ndarray) -> None:
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    from credibly.data import load  # the parser of the format is not what is tried here

    columns = [f"x{i}" for i in range(5)]
    marks = [f"y:{name}" for name in LABELS]
    lines = [",".join([*columns, *marks])]
    arff = ["@relation rows", *(f"@attribute {name} numeric" for name in columns)]
    arff += [f"@attribute '{name}' {{0,1}}" for name in LABELS] + ["@data"]
    raw = [",".join([*(f"s:{name}" for name in LABELS), *marks])]
    for inputs, outputs, truth in zip(features, scores, targets, strict=True):
        known = ["" if mark < 0 else str(mark) for mark in truth]
        lines.append(",".join([*map(repr, inputs.tolist()), *known]))
        arff.append(",".join([*map(repr, inputs.tolist()), *(mark or "?" for mark in known)]))
        raw.append(",".join([*map(repr, outputs.tolist()), *known]))
    (world / "rows.csv").write_text("\n".join(lines) + "\n")
    (world / "rows.arff").write_text("\n".join(arff) + "\n")
    (world / "scores.csv").write_text("\n".join(raw) + "\n")
    pq.write_table(csv.read_csv(world / "rows.csv"), world / "rows.parquet")
    assert len(load(str(world / "rows.csv"))) == 180


# What stands in a folder ---------------------------------------------------------------------


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def final_files(out: Path) -> dict[str, str]:
    """Files under their final names, by their bytes; hidden ones are on their way to be one."""
    files = (path for path in out.rglob("*") if path.is_file() and path.name[0] != ".")
    return {str(path.relative_to(out)): sha(path) for path in sorted(files)}


def results(out: Path) -> dict[str, str]:
    """The final files that a person uses; ``state/`` serves only to go on."""
    return {name: value for name, value in final_files(out).items() if "/state/" not in name}


def leftovers(out: Path) -> list[str]:
    """Files that were on their way when the process died."""
    return [path.name for path in out.rglob(".*") if path.is_file()]


def read_whole(path: Path) -> None:
    """Read a file of any kind to its end; raises if it is broken."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.read_table(path)
    elif path.suffix == ".safetensors":
        from safetensors.torch import load_file

        load_file(path)
    elif path.suffix == ".toml":
        tomllib.loads(path.read_text(encoding="utf-8"))
    elif path.suffix in (".json", ".jsonl"):
        text = path.read_text(encoding="utf-8")
        for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
            json.loads(part)
    else:
        assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), path
