"""The default on images beside a linear probe, plain fine-tuning and the asymmetric loss.

    python -m benchmarks.studies.default_images [SET …] [--seeds 2] [--methods M] [--table]

Every method is one `credibly train` in a process of its own, one thread, EfficientNet-Lite0 from
the weights that ``credibly[images]`` installs. The default has no option at all; the others train
five epochs at the same rate, or as their name says. The default and the probe see images at 224
pixels, plain fine-tuning and ASL at their own size where it is smaller. ``coco 2,000``
and ``voc 2,000`` are 2,000 training and 2,000 test images drawn from COCO at 96 pixels and from
VOC at 112 pixels. Training rows train, stop and
calibrate; test rows are measured once. Each run is one line of ``default_images.jsonl``; the same
command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.studies.training import data_file

RECORDS = Path(__file__).with_suffix(".jsonl")
SETS = {
    "coco 2,000": "coco80",
    "ucmerced": "ucmerced",
    "voc 2,000": "voc2012-images",
}
LITE0 = ("--model", "efficientnet-lite0", "--weights", "auto")
TUNED = (*LITE0, "--no-probe-first", "--epochs", "5", "--learning-rate", "3e-4")
METHODS = {
    "default": (),
    "96 pixels, 5 epochs": (*LITE0, "--image-size", "96"),
    "160 pixels, 3 epochs": (*LITE0, "--image-size", "160", "--epochs", "3"),
    "linear probe": (*LITE0, "--probe"),
    "fine-tuning, Platt": (*TUNED, "--loss", "bce", "--calibrate", "affine"),
    "ASL, Platt": (*TUNED, "--loss", "asl(detach_weight=true)", "--calibrate", "affine"),
}


def drawn(name: str, folder: Path) -> Path:
    """Return the file of a set, cut to 2,000 rows of each split where its name says so."""
    path = data_file(f"{SETS[name]}.parquet")
    if "2,000" not in name:
        return path
    table, noise = pq.read_table(path), np.random.default_rng(0)
    split = np.array(table["split"].to_pylist())
    rows = [noise.permutation(np.flatnonzero(split == s))[:2000] for s in ("train", "test")]
    pq.write_table(table.take(pa.array(np.sort(np.concatenate(rows)))), folder / "drawn.parquet")
    return folder / "drawn.parquet"


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """Train once by the command; return its metrics, CPU seconds and peak memory."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        flags = [*METHODS[method], "--seed", str(seed), "--split-seed", str(seed)]
        call = ["credibly", "train", str(drawn(name, folder)), "--out", str(folder / "run"), *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        process = subprocess.Popen([sys.executable, "-m", *call, "--quiet"], env=environment)
        _, status, used = os.wait4(process.pid, 0)  # of this process, not of earlier ones
        if status:
            raise subprocess.CalledProcessError(status, call)
        metrics = json.loads((folder / "run" / "metrics.json").read_text())
    return {
        "set": name,
        "method": method,
        "seed": seed,
        "metrics": metrics,
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def records() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []
    )


def table() -> str:
    """Return the mean over seeds of every set and method, and the default's paired differences."""
    lines = ["| images | method | seeds | NLL × 1000 | ACE % | mAP % | CPU s | peak MB |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name in SETS:
        for method in dict.fromkeys((*METHODS, *(run["method"] for run in records()))):
            runs = [r for r in records() if (r["set"], r["method"]) == (name, method)]
            if not runs:
                continue
            nll, ace, ap = (
                mean(factor * run["metrics"][key] for run in runs)
                for key, factor in (("NLL", 1000), ("ACE", 100), ("mAP@y", 100))
            )
            cpu, peak = mean(r["cpu_seconds"] for r in runs), max(r["peak_mb"] or 0 for r in runs)
            lines.append(
                f"| {name} | {method} | {len(runs)} | {nll:.1f} | {ace:.2f} | {ap:.1f} "
                f"| {cpu:.0f} | {f'{peak:,}' if peak else 'not measured'} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by ;")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    done = {(r["set"], r["method"], r["seed"]) for r in records()}
    for seed in range(0 if options.table else options.seeds):
        for name in options.sets or SETS:
            for method in options.methods.split(";"):
                if (name, method, seed) in done:
                    continue
                line = json.dumps(measure(name, method, seed))
                with RECORDS.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)
    print(table())


if __name__ == "__main__":
    main()
