"""One self-contained HTML page from predictions: a verdict, tables, charts, how it was made."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.predictions import Predictions

__all__ = ["render", "write"]

MOST_ROWS = 200_000


def write(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    resamples: int = 200,
    seed: int = 0,
    partial: bool = False,
) -> Path:
    """Read predictions files and write the report; ``out`` is whole or not there.

    Args:
        paths: predictions files to compare, all with the same labels.
        out: the HTML file.
        names: what to call them; their file names otherwise.
        resamples: bootstrap resamples behind each interval.
        seed: of the bootstrap, and of the sample taken of very large files.
        partial: whether a folder may lack shards; otherwise that is an error.
    """
    called = list(names) if names else names_of([Path(path) for path in paths])
    if len(called) != len(paths):
        raise InputError(f"there must be one name a file; got {len(called)} for {len(paths)}.")
    methods = {name: _read(path, seed, partial) for name, path in zip(called, paths, strict=True)}
    page = render(methods, resamples=resamples, seed=seed)
    with atomic_path(out) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(out)


def names_of(paths: Sequence[Path]) -> list[str]:
    """File stems; where they repeat (``predictions.parquet`` of several runs), their folders.

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
        stems = [str(path) for path in paths]
    if len(set(stems)) < len(stems):
        stems = [f"{name} ({place})" for place, name in enumerate(stems, start=1)]
    return stems


def _read(path: str | os.PathLike[str], seed: int, partial: bool) -> Predictions:
    import numpy as np

    scan = Predictions.scan(path, partial=partial)
    if scan.num_rows <= MOST_ROWS:
        return scan.read()
    scan.check_ids()
    chosen = np.sort(np.random.default_rng(seed).choice(scan.num_rows, MOST_ROWS, replace=False))
    return scan.read(rows=chosen)


def render(methods: Mapping[str, Predictions], *, resamples: int = 200, seed: int = 0) -> str:
    """The report as HTML text.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((300, 3))
        >>> one = Predictions.from_arrays(
        ...     probabilities=p, targets=rng.random((300, 3)) < p, labels=["a", "<b>", "c"])
        >>> page = render({"mine": one}, resamples=20)
        >>> page.startswith("<!doctype html>"), "<b>" in page
        (True, False)
    """
    from credibly.report._page import page

    if not methods:
        raise InputError("a report needs at least one predictions file; got none.")
    first, *others = methods
    for other in others:
        if sorted(methods[other].labels) != sorted(methods[first].labels):
            raise InputError(
                f"a report compares predictions of the same labels; those of {first!r} and "
                f"{other!r} differ. Use `Predictions.select` to keep the shared ones."
            )
    return page(methods, resamples=resamples, seed=seed)
