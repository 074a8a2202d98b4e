"""Find a folder of a published layout."""

from __future__ import annotations

from pathlib import Path

from credibly.checks import InputError


def first_folder(root: Path, *names: str) -> Path:
    """Return the first of these that is a folder below ``root``."""
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise InputError(f"{root} must contain one of the folders {', '.join(names)}.")
