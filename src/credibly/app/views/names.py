"""Names of predictions files for tables and legends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return file stems; where they repeat (``predictions.parquet`` of runs), their folders.

    Example:
        >>> names_of([Path("a/predictions.parquet"), Path("b/predictions.parquet")])
        ['a', 'b']
        >>> names_of([Path("x/mine.parquet"), Path("x/mine.parquet")])
        ['x/mine.parquet (1)', 'x/mine.parquet (2)']
    """
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems) or set(stems) == {"predictions"}:
        stems = [path.resolve().parent.name for path in paths]
    if len(set(stems)) < len(stems):
        stems = _endings(paths)
    if len(set(stems)) < len(stems):
        stems = [f"{name} ({place})" for place, name in enumerate(stems, start=1)]
    return stems


def _endings(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of the paths that differ; whole paths where none do."""
    parts = [path.parts for path in paths]
    for length in range(2, max(map(len, parts))):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
