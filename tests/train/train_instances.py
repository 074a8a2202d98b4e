"""Small data with every awkward row, and children that train and die."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np

from credibly.data import Data

SERVER = multiprocessing.get_context("forkserver")
# One server per process, and the last list wins: that of the faults has all of this, and more.
if "fault_process" not in sys.modules:
    SERVER.set_forkserver_preload(["credibly.train.fitting", "accelerate", "credibly.metrics"])

LABELS = ["cat", "dog", "dining table", "fork", "never there"]


def save_npz(path: Path, rows: Data) -> Path:
    """Write rows as a file that ``cr.data.load`` reads."""
    arrays = {"features": rows.features, "targets": rows.targets, "split": rows.split}
    np.savez(path, labels=np.array(rows.labels), **arrays)
    return path


def awkward(rows: int = 240, seed: int = 0, labels: int = 5) -> Data:
    """Features with zero-label rows, all-unknown rows, single unknowns, a label never present."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 6)).astype(np.float32)
    pull = np.random.default_rng(7).normal(size=(6, labels))
    targets = (features @ pull + generator.normal(size=(rows, labels)) > 1.5).astype(np.float32)
    targets[:, -1] = 0
    targets[:12] = 0
    targets[12:20] = -1
    targets[20:60][generator.random((40, labels)) < 0.2] = -1
    split = np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5]
    return Data(LABELS[:labels], targets, features=features, split=split, source="awkward")


def single(rows: int = 240, seed: int = 0) -> Data:
    """Exactly one label per row."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 6)).astype(np.float32)
    best = (features @ np.random.default_rng(7).normal(size=(6, 5))).argmax(axis=1)
    split = np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5]
    return Data(LABELS, np.eye(5)[best], features=features, split=split, source="single")


def pictures(rows: int = 80) -> Data:
    """Images of one bright quarter each, with shifts as augmentation."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 60, size=(rows, 16, 16, 1), dtype=np.uint8)
    place = generator.integers(0, 4, size=rows)
    for row, (down, right) in enumerate(zip(place // 2, place % 2, strict=True)):
        images[row, 8 * down : 8 * down + 8, 8 * right : 8 * right + 8] += 150
    split = np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5]
    names = ["a", "b", "c", "d"]
    return Data(
        names, np.eye(4)[place], images=images, split=split, source="pictures", augmentation="shift"
    )


def pretrained_weights(folder: Path) -> str:
    """Write weights of a network for ``pictures`` that has seen something else."""
    import torch
    from safetensors.torch import save_file

    from credibly.models import build

    torch.manual_seed(1)
    path = folder / "backbone.safetensors"
    state = build("resnet20-32", (1, 16, 16), 4).backbone.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    return str(path)


DATA = {"awkward": awkward, "single": single, "pictures": pictures}


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def free_port() -> int:
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return here.getsockname()[1]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train_and_die(kind: str, folder: str, settings: dict[str, Any], how: str, instant: int) -> None:
    """Go on with a run and die by SIGKILL at the ``instant``-th update, flush or rename."""
    import torch

    from credibly.train import Callback, fit, recipe

    torch.set_num_threads(1)
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == instant:
            die()

    class Deadly(Callback):
        def on_update(self, done: int, total: int) -> None:
            if how == "update":
                count()

    if how in ("fsync", "replace"):
        real = getattr(os, how)

        def deadly(*arguments: Any) -> Any:
            count()
            return real(*arguments)

        setattr(os, how, deadly)
    fit(DATA[kind](), recipe(**settings), folder=folder, resume=True, callback=Deadly())


def train_as_one_of_two(
    rank: int, port: int, folder: str, runs: list[tuple[str, str, dict[str, Any]]]
) -> None:
    """Train each of ``runs`` as process ``rank`` of two."""
    import torch

    from credibly.train import fit, recipe

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    for name, kind, settings in runs:
        fit(DATA[kind](), recipe(**settings), folder=Path(folder) / name)
    torch.distributed.destroy_process_group()


def train_by_two(folder: Path, runs: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Train each of ``runs`` on two processes."""
    port = free_port()
    children = [
        SERVER.Process(target=train_as_one_of_two, args=(rank, port, str(folder), runs))
        for rank in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(timeout=300)
    assert [child.exitcode for child in children] == [0, 0]
