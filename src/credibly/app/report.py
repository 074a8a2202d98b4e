"""One self-contained HTML page: the Overview of each file, frozen, and how it was made."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice, zip_longest
from pathlib import Path

import numpy as np
from markupsafe import Markup

from credibly import __version__
from credibly.app.charts import overview_charts, small_reliability
from credibly.app.rendering import decimals, environment, metric, small_copy, static_text
from credibly.app.statistics.comparisons import COLUMNS, best_sentence, comparison, names_of
from credibly.app.statistics.labels import LabelSummary
from credibly.app.statistics.overview import SMALL_MULTIPLES, FirstLook, first_look
from credibly.app.statistics.top_k import top_look
from credibly.checks import InputError
from credibly.files import atomic_path
from credibly.predictions import Dataset, Predictions
from credibly.types import Array, JsonObject
from credibly.untrusted.images import ImageFolder

__all__ = ["render", "write"]

MOST_ROWS = 200_000
"""Rows that are judged; of more, a random part."""
MOST_LABELS = 500
"""Labels of the table of a file with the top labels of each row; all would make a large page."""
SHOWN = 400
"""Characters of a text."""
SIDE = 176
"""Pixels of the longer side of an image."""
MOST_BYTES = 3_000_000
"""Bytes of all images of a report; further examples are left out."""


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
    """Read predictions files and write the report; ``out`` is complete or absent.

    Args:
        paths: predictions files to compare, all with the same labels. Files that store only the
            most probable labels of each row get a report on ranking and on every label.
        out: the HTML file.
        names: names of the files in the report; by default their file names.
        resamples: number of bootstrap resamples per interval.
        seed: seed of the bootstrap, and of the sample of very large files.
        partial: whether a folder may lack shards; by default that is an error.
        texts: texts by row id; the report then shows the worst rows with their texts.
        images: folder of images named by row ids; the worst rows are shown with small copies.
        examples: number of such rows per file.
        advance: called with the share of the work that was done since the last call.

    Example:
        >>> import credibly as cr
        >>> predictions = cr.Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.1, 0.7]], targets=[[1, 0], [0, 0]],
        ...     labels=["cat", "dog"])
        >>> predictions.write("predictions.parquet")
        >>> write(["predictions.parquet"], "report.html").name
        'report.html'
    """
    called = list(names) if names else names_of([Path(path) for path in paths])
    if len(called) != len(paths):
        raise InputError(f"there must be one name per file; got {len(called)} for {len(paths)}.")
    sources = {name: Path(path) for name, path in zip(called, paths, strict=True)}
    datasets = {name: Dataset(path, partial=partial) for name, path in sources.items()}
    if any(not dataset.every_label for dataset in datasets.values()):
        _refuse_for_top(datasets, texts, images)
        page = _top_page(datasets, sources, advance)
    else:
        methods = {}
        for name, dataset in datasets.items():
            methods[name] = _read(dataset, seed)
            advance(0.1 / len(called))
        page = render(
            methods,
            resamples=resamples,
            seed=seed,
            total_rows={name: dataset.num_rows for name, dataset in datasets.items()},
            sources=sources,
            texts=texts,
            images=images,
            examples=examples,
            advance=lambda share: advance(0.9 * share),
        )
    with atomic_path(out) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(out)


def _refuse_for_top(datasets: Mapping[str, Dataset], texts: object, images: object) -> None:
    """Say what a report on the most probable labels of each row cannot show."""
    first, *others = datasets.items()
    for name, dataset in others:
        if dataset.every_label != first[1].every_label:
            raise InputError(
                f"a report compares files of one layout; of {first[0]!r} and {name!r} one has a "
                "column per label, the other the most probable labels of each row. Write two "
                "reports."
            )
    _check_labels({name: dataset.labels for name, dataset in datasets.items()})
    if texts is not None or images is not None:
        raise InputError(
            "texts and images need files with a column per label; "
            f"{first[1].path} holds the most probable labels of each row. Leave them out."
        )


def _check_labels(labels: Mapping[str, Sequence[str]]) -> None:
    first, *others = labels
    for other in others:
        if sorted(labels[other]) != sorted(labels[first]):
            raise InputError(
                f"a report compares predictions of the same labels; those of {first!r} and "
                f"{other!r} differ. Use `Predictions.select` to keep the shared ones."
            )


def _read(scan: Dataset, seed: int) -> Predictions:
    """Return the rows to report on."""
    if scan.num_rows <= MOST_ROWS:
        return scan.read()
    chosen = np.sort(np.random.default_rng(seed).choice(scan.num_rows, MOST_ROWS, replace=False))
    return scan.read(rows=chosen)


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
        resamples: number of resamples per interval.
        seed: seed of the resamples.
        total_rows: number of rows of the files, if ``methods`` are a sample of them.
        sources: the files. The report names them with their dates and hashes.
        texts: texts by row id; the report then shows the worst rows with their texts.
        images: folder of images named by row ids; the worst rows are shown with small copies.
        examples: number of such rows per file.
        advance: called with the share of the work that was done since the last call.

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
    if not methods:
        raise InputError("a report needs at least one predictions file; got none.")
    _check_labels({name: one.labels for name, one in methods.items()})
    total = {name: len(one) for name, one in methods.items()} | dict(total_rows or {})
    sources = sources or {}
    maker = ExampleMaker(examples, texts, None if images is None else ImageFolder(images))
    judged = {}
    for name, one in methods.items():
        look = first_look(one, _shown(sources.get(name, Path(f"{name}.parquet"))))
        order = {label: place for place, label in enumerate(one.labels)}
        labels = sorted(look.labels, key=lambda row: order[row.label])
        judged[name] = Judged(look, labels, total[name], len(one), one.num_labels, one.metadata)
        advance(0.5 / len(methods))
    numbers = comparison(
        methods, resamples=resamples, seed=seed, advance=lambda share: advance(0.4 * share)
    )
    found = {name: maker.examples(one) for name, one in methods.items()}
    advance(0.1)
    intervals = f"95 %, Poisson bootstrap over rows, {resamples} resamples, seed {seed}"
    return _filled(
        judged,
        sources,
        {"intervals": intervals},
        comparison=numbers,
        best=best_sentence(numbers),
        candidates={n: rows for n, one in methods.items() if len(rows := _candidates(one)) > 1},
        examples={name: rows for name, rows in found.items() if rows},
        examples_cut=maker.full,
    )


@dataclass(frozen=True)
class Judged:
    """One file of the report.

    Attributes:
        look: its overview.
        labels: every label, or those that differ most from what was expected.
        total: rows of the file.
        measured: rows that the numbers come from.
        num_labels: labels of the file.
        metadata: of the file.
    """

    look: FirstLook
    labels: Sequence[LabelSummary]
    total: int
    measured: int
    num_labels: int
    metadata: JsonObject

    @property
    def charts(self) -> dict[str, Markup]:
        """Return its charts by name."""
        return overview_charts(self.look)


def _top_page(
    datasets: Mapping[str, Dataset], sources: Mapping[str, Path], advance: Callable[[float], None]
) -> str:
    """Return the page on files that hold the most probable labels of each row."""
    judged, figures = {}, {}
    for name, dataset in datasets.items():
        found = top_look(dataset, advance=lambda share: advance(share / len(datasets)))
        labels, rows = found.first.labels[:MOST_LABELS], dataset.num_rows
        figures[name] = found.figures
        count = len(found.labels)
        judged[name] = Judged(found.first, labels, rows, rows, count, dataset.metadata)
    return _filled(judged, sources, {}, figures={n: f for n, f in figures.items() if f})


def _filled(
    judged: Mapping[str, Judged],
    sources: Mapping[str, Path],
    settings: Mapping[str, str],
    **values: object,
) -> str:
    usual = dict.fromkeys(("comparison", "best", "candidates", "examples", "figures"))
    return (
        environment()
        .get_template("report.html")
        .render(
            **{**usual, "examples_cut": False, **values},
            judged=judged,
            columns=COLUMNS,
            small=small_reliability,
            multiples=SMALL_MULTIPLES,
            style=Markup(static_text("charts.css", "style.css")),
            hover=Markup(static_text("hover.js")),
            made=_how(judged, settings)
            | {f"{name}, file": _origin(path) for name, path in sources.items()},
        )
    )


def _candidates(one: Predictions) -> list[list[str]]:
    """Return the models that were compared in training: name, figures, weight, remark."""
    found = one.metadata.get("candidates")
    listed = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    places, rows = decimals(row.get("nll") for row in listed), []
    for row in listed:
        figures = {name: row.get(name) for name in ("nll", "map", "ace", "weight")}
        shown = [
            metric(v, name, places) if isinstance(v, float) else "" for name, v in figures.items()
        ]
        rows.append([str(row.get("model", "")), *shown, str(row.get("left_out", ""))[:200]])
    return rows


def _origin(path: Path) -> str:
    """Return where a file lies, when it was written and what it hashes to."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(2**20):
                digest.update(block)
    written = max(file.stat().st_mtime for file in files)
    when = datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")
    return f"{_shown(path)}, written {when}, SHA-256 {digest.hexdigest()}"


def _shown(path: Path) -> str:
    """Return a path without the folders of this machine: a report may be sent to others."""
    return str(Path(*path.parts[-2:]) if path.is_absolute() and len(path.parts) > 2 else path)


def _how(judged: Mapping[str, Judged], settings: Mapping[str, str]) -> JsonObject:
    """Return everything needed to make the report again."""
    about: JsonObject = {
        "credibly": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **settings,
    }
    for name, one in judged.items():
        left_out = ("labels", "candidates")  # candidates have a table of their own
        kept = {key: value for key, value in one.metadata.items() if key not in left_out}
        if isinstance(source := kept.get("data"), str):
            kind, colon, place = source.rpartition(":")
            kept["data"] = kind + colon + _shown(Path(place))
        about[name] = json.dumps(kept, ensure_ascii=False, default=str)[:4000]
    return about


@dataclass(frozen=True)
class Example:
    """One row with the label that is most wrong in it.

    Attributes:
        id, label: which entry.
        kind: ``"missed"`` or ``"false alarm"`` at a threshold of one half, ``"present"`` or
            ``"absent"`` where no mistakes are left; ``"most certain"`` without truth.
        probability: of the label.
        text: of the row, shortened; empty without one.
        image: of the row, small, as a data address; empty without one.
        size: width and height of the image.
    """

    id: str
    label: str
    kind: str
    probability: float
    text: str = ""
    image: str = ""
    size: tuple[int, int] = (0, 0)


class ExampleMaker:
    """Finds examples and keeps their images within ``MOST_BYTES`` over all methods.

    Args:
        count: examples of each method.
        texts: texts by row id.
        images: where images of rows lie.
    """

    def __init__(
        self, count: int, texts: Mapping[str, str] | None, images: ImageFolder | None
    ) -> None:
        self.count = count
        self._texts = texts or {}
        self._images = images
        self._left = MOST_BYTES

    @property
    def full(self) -> bool:
        """Return whether images were left out because they would have been too many bytes."""
        return self._left <= 0

    def examples(self, one: Predictions) -> list[Example]:
        """Return the worst rows, missed labels and false alarms in turns, each row once."""
        seen: set[int] = set()
        kinds = (self._of_kind(one, kind, score, seen) for kind, score in _scores(one).items())
        turns = chain.from_iterable(zip_longest(*kinds))
        return list(islice(filter(None, turns), self.count))

    def _of_kind(
        self, one: Predictions, kind: str, score: Array, seen: set[int]
    ) -> Iterator[Example]:
        """Yield the worst label of each row, the worst rows first."""
        worst = score.max(axis=1)
        for row in np.argsort(-worst, kind="stable").tolist():
            if worst[row] < 0:
                return
            if row in seen:
                continue
            id, label = str(one.ids[row]), int(score[row].argmax())
            image, size = self._image(id)
            if not image and id not in self._texts:
                continue
            seen.add(row)
            probability = float(one.probabilities[row, label])
            text = self._texts.get(id, "")
            text = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
            words = {("present", False): "missed", ("absent", True): "false alarm"}
            called = words.get((kind, probability >= 0.5), kind)
            yield Example(id, one.labels[label], called, probability, text, image, size)

    def _image(self, id: str) -> tuple[str, tuple[int, int]]:
        path = None if self._images is None else self._images.find(id)
        if path is None or self._left <= 0:
            return "", (0, 0)
        try:
            address, size = thumbnail(path)
        except InputError:  # damaged
            return "", (0, 0)
        self._left -= len(address)
        return (address, size) if self._left > 0 else ("", (0, 0))


def _scores(one: Predictions) -> dict[str, Array]:
    """Return how wrong every entry is, by kind; −1 where it is not of that kind."""
    p, y = one.probabilities, one.targets
    if y is None or not (y >= 0).any():
        return {"most certain": p}
    return {
        "present": np.where(y >= 0.5, 1 - p, -1.0),
        "absent": np.where((y >= 0) & (y < 0.5), p, -1.0),
    }


def thumbnail(path: Path) -> tuple[str, tuple[int, int]]:
    """Return a small copy of an image as a data address, with its width and height.

    Raises:
        InputError: for a file that does not decode.
    """
    small = small_copy(path, SIDE)
    coded = {}
    for kind, options in {"jpeg": {"quality": 75}, "png": {"optimize": True}}.items():
        buffer = io.BytesIO()
        small.save(buffer, kind, **options)
        coded[kind] = buffer.getvalue()
    kind = min(coded, key=lambda each: len(coded[each]))  # drawings are smaller as PNG
    text = base64.b64encode(coded[kind]).decode("ascii")
    return f"data:image/{kind};base64,{text}", small.size
