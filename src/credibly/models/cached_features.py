"""The features of a frozen backbone for each row, computed once and stored."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from credibly.checks import InputError
from credibly.data import Data
from credibly.data.torch_datasets import RowSource, stream
from credibly.files import atomic_path, make_folder, write_json
from credibly.models.network import NetworkModule
from credibly.untrusted.arrays import read_array
from credibly.untrusted.documents import read_json_object

CHUNK = 4096
"""Rows in one part of the cache; an interrupted run continues after the last whole part."""


def cache_features(
    model: NetworkModule,
    data: Data,
    path: str | Path,
    *,
    image_size: int | tuple[int, int] | None = None,
    eval_crop: int | None = None,
    batch_size: int = 64,
    workers: int = 0,
    device: str | torch.device = "cpu",
) -> Data:
    """Replace the images of ``data`` by the backbone's features, stored in the folder ``path``.

    The folder contains one ``.npy`` file per few thousand rows and the names of the model and the
    data. Another model or other data is an error. An unfinished folder is continued.

    Example:
        >>> import tempfile, credibly as cr
        >>> scenes = cr.data.digits(50)
        >>> model = cr.models.build("cnn", scenes, hidden=8, frozen=True)
        >>> cache_features(model, scenes, tempfile.mkdtemp()).features.shape
        (50, 64)
    """
    folder = Path(path)
    make_folder(folder)
    _claim(folder, model, data, image_size)
    rows = data.torch_dataset(train=False, image_size=image_size, eval_crop=eval_crop)
    parts = []
    for start in range(0, len(data), CHUNK):
        part = folder / f"features-{start:09d}.npy"
        stop = min(start + CHUNK, len(data))
        if not part.exists():
            order = torch.arange(start, stop)
            if rows.lengths is not None:  # rows of similar length share a batch
                order = order[np.argsort(rows.lengths[start:stop], kind="stable")]
            with atomic_path(part) as beside, beside.open("wb") as file:
                np.save(file, _features(model, rows, order.split(batch_size), workers, device))
        parts.append(_read(part, stop - start, model.num_features))
    features = np.concatenate(parts) if parts else np.zeros((0, model.num_features), np.float32)
    source = f"{data.source} through {model.name}"
    inputs = {"features": features, **dict.fromkeys(("images", "texts", "regions", "encoded"))}
    return dataclasses.replace(data, source=source, **inputs)


def _features(
    model: NetworkModule,
    rows: RowSource,
    batches: Sequence[Tensor],
    workers: int,
    device: torch.device | str,
) -> np.ndarray:
    training = model.training
    model.eval().to(device)
    try:
        with torch.inference_mode():
            found = [
                model.features(inputs.to(device)).float().cpu()
                for inputs, _, _ in stream(rows, batches, workers)
            ]
    finally:
        model.train(training)
    features = torch.cat(found).numpy()
    if not np.isfinite(features).all():
        bad = int((~np.isfinite(features)).any(axis=1).sum())
        raise InputError(
            f"features of {model.name} must be finite numbers; those of {bad} of {len(features)} "
            "rows are not. Check its weights."
        )
    return features[torch.argsort(torch.cat(list(batches))).numpy()]


def _claim(folder: Path, model: NetworkModule, data: Data, image_size: object) -> None:
    """Describe the contents of the folder in a file, or check that they are the requested ones."""
    size = list(image_size) if isinstance(image_size, tuple) else image_size
    wanted = {
        "version": 1,
        "data": data.fingerprint(),
        "model": model.name,
        "weights": _weights_hash(model),
        "image_size": size,
    }
    card = folder / "cache.json"
    if not card.exists():
        return write_json(card, wanted)
    found = read_json_object(card, "Delete the folder to start over.")
    for key, value in wanted.items():
        if found.get(key) != value:
            raise InputError(
                f"{folder} caches features of another {key.replace('_', ' ')}; "
                "give another folder, or delete this one."
            )


def _weights_hash(model: NetworkModule) -> str:
    digest = hashlib.sha256()
    for part in (model.standardize, model.backbone):
        for name, value in part.state_dict().items():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(part: Path, rows: int, columns: int) -> np.ndarray:
    try:
        features = read_array(part)
    except InputError as error:
        raise InputError(f"{error} Delete it and run again.") from None
    if features.shape != (rows, columns):
        raise InputError(
            f"{part} must have shape {(rows, columns)}; got {features.shape}. Delete it and run "
            "again."
        )
    return features
