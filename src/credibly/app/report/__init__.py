"""One self-contained HTML page from predictions: a verdict, tables, charts, how it was made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from credibly.app.views.comparisons import names_of
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.predictions import Dataset, Predictions

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
    texts: Mapping[str, str] | None = None,
    images: str | os.PathLike[str] | None = None,
    examples: int = 16,
    advance: Callable[[float], None] = lambda share: None,
) -> Path:
    """Read predictions files and write the report; ``out`` is complete or not there.

    Args:
        paths: predictions files to compare, all with the same labels. Files that hold the most
            probable labels of each row get a report on ranking, the labels held and every label.
        out: the HTML file.
        names: what to call them; their file names otherwise.
        resamples: bootstrap resamples behind each interval.
        seed: of the bootstrap, and of the sample taken of very large files.
        partial: whether a folder may lack shards; otherwise that is an error.
        texts: texts by row id; the report then shows the worst rows with their texts.
        images: folder of images named by row ids; the worst rows are shown with small copies.
        examples: how many such rows of each file.
        advance: called with the share of the work done since its last call.
    """
    called = list(names) if names else names_of([Path(path) for path in paths])
    if len(called) != len(paths):
        raise InputError(f"there must be one name per file; got {len(called)} for {len(paths)}.")
    sources = {name: Path(path) for name, path in zip(called, paths, strict=True)}
    datasets = {name: Dataset(path, partial=partial) for name, path in sources.items()}
    if any(dataset.top for dataset in datasets.values()):
        _refuse_for_top(datasets, texts, images)
        page = _top_page(datasets, sources, advance)
        return _written(page, out)
    methods, total_rows = {}, {}
    for name, path in zip(called, paths, strict=True):
        methods[name], total_rows[name] = _read(path, seed, partial)
        advance(0.1 / len(called))
    page = render(
        methods,
        resamples=resamples,
        seed=seed,
        total_rows=total_rows,
        sources=sources,
        texts=texts,
        images=images,
        examples=examples,
        advance=lambda share: advance(0.9 * share),
    )
    return _written(page, out)


def _written(page: str, out: str | os.PathLike[str]) -> Path:
    with atomic_path(out) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(out)


def _top_page(
    datasets: Mapping[str, Dataset], sources: Mapping[str, Path], advance: Callable[[float], None]
) -> str:
    from credibly.app.report.page import top_page

    return top_page(datasets, sources=sources, advance=advance)


def _refuse_for_top(datasets: Mapping[str, Dataset], texts: object, images: object) -> None:
    """Say what a report on the most probable labels of each row cannot show."""
    first, *others = datasets.items()
    for name, dataset in others:
        if dataset.top != first[1].top:
            raise InputError(
                f"a report compares files of one layout; of {first[0]!r} and {name!r} one has a "
                "column per label, the other the most probable labels of each row. Write two "
                "reports."
            )
        if sorted(dataset.labels) != sorted(first[1].labels):
            raise InputError(
                f"a report compares predictions of the same labels; those of {first[0]!r} and "
                f"{name!r} differ."
            )
    if texts is not None or images is not None:
        raise InputError(
            "texts and images need files with a column per label; "
            f"{first[1].path} holds the most probable labels of each row. Leave them out."
        )


def _read(path: str | os.PathLike[str], seed: int, partial: bool) -> tuple[Predictions, int]:
    """Return the rows to report on, and how many there are in the file."""
    import numpy as np

    scan = Predictions.scan(path, partial=partial)
    if scan.num_rows <= MOST_ROWS:
        return scan.read(), scan.num_rows
    chosen = np.sort(np.random.default_rng(seed).choice(scan.num_rows, MOST_ROWS, replace=False))
    return scan.read(rows=chosen), scan.num_rows


def render(
    methods: Mapping[str, Predictions],
    *,
    resamples: int = 200,
    seed: int = 0,
    total_rows: Mapping[str, int] | None = None,
    sources: Mapping[str, Path] | None = None,
    texts: Mapping[str, str] | None = None,
    images: str | os.PathLike[str] | None = None,
    examples: int = 16,
    advance: Callable[[float], None] = lambda share: None,
) -> str:
    """Return the report as HTML text.

    Args:
        methods: predictions by name, all with the same labels.
        resamples: resamples behind each interval.
        seed: seed of the resamples.
        total_rows: rows of the files, where ``methods`` hold a sample of them.
        sources: the files; the report names them with their dates and hashes.
        texts: texts by row id; the report then shows the worst rows with their texts.
        images: folder of images named by row ids; the worst rows are shown with small copies.
        examples: how many such rows of each file.
        advance: called with the share of the work done since its last call.

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
    from credibly.app.report.examples import ExampleMaker
    from credibly.app.report.page import page
    from credibly.data.image_files import ImageFolder

    if not methods:
        raise InputError("a report needs at least one predictions file; got none.")
    first, *others = methods
    for other in others:
        if sorted(methods[other].labels) != sorted(methods[first].labels):
            raise InputError(
                f"a report compares predictions of the same labels; those of {first!r} and "
                f"{other!r} differ. Use `Predictions.select` to keep the shared ones."
            )
    total = {name: len(one) for name, one in methods.items()} | dict(total_rows or {})
    return page(
        methods,
        total,
        dict(sources or {}),
        ExampleMaker(examples, texts, None if images is None else ImageFolder(images)),
        resamples=resamples,
        seed=seed,
        advance=advance,
    )
