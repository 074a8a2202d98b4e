"""Find the folders of a published layout."""

from __future__ import annotations

from pathlib import Path

from credibly.checks import InputError
from credibly.data.class_folders import subfolders


def holding(path: Path, *needed: str) -> Path:
    """Return the folder that contains one of ``needed``: ``path``, or one up to three levels below.

    Archives often unpack into a subfolder, so you can also pass the folder around it.
    """
    level = [path]
    for _ in range(4):
        found = [folder for folder in level if any(any(folder.glob(name)) for name in needed)]
        if len(found) > 1:
            listed = ", ".join(str(folder) for folder in found[:5])
            raise InputError(f"{path} holds {len(found)} such folders; give one of {listed}.")
        if found:
            return found[0]
        level = [inner for folder in level[:100] for inner in subfolders(folder)]
    raise InputError(f"{path} must contain {' or '.join(needed)}, itself or in a folder below.")


def first_folder(root: Path, *names: str) -> Path:
    """Return the first of these names that is a folder below ``root``."""
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise InputError(f"{root} must contain one of the folders {', '.join(names)}.")
