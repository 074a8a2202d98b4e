"""Fill the template of the report: the Overview of each file, frozen, and how it was made."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from credibly import __version__
from credibly.app.charts import overview_charts, small_reliability
from credibly.app.report.examples import ExampleMaker
from credibly.app.views.comparisons import COLUMNS, best_sentence, comparison
from credibly.app.views.labels import AtlasRow
from credibly.app.views.overview import SMALL_MULTIPLES, FirstLook, first_look
from credibly.app.views.top_k import top_first_look, top_summary
from credibly.checks import require
from credibly.predictions import Dataset, Predictions

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_LABELS = 500
"""Labels of the table of a file with the top labels of each row; all would make a large page."""


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
    labels: Sequence[AtlasRow]
    total: int
    measured: int
    num_labels: int
    metadata: Mapping[str, Any]

    @property
    def charts(self) -> dict[str, Markup]:
        """Return its charts by name."""
        return overview_charts(self.look)


def page(
    methods: Mapping[str, Predictions],
    total_rows: Mapping[str, int],
    sources: Mapping[str, Path],
    maker: ExampleMaker,
    *,
    resamples: int,
    seed: int,
    advance: Callable[[float], None],
) -> str:
    """Return the page on files with a column per label."""
    judged = {}
    for name, one in methods.items():
        look = first_look(one, _shown(sources.get(name, Path(f"{name}.parquet"))))
        order = {label: place for place, label in enumerate(one.labels)}
        labels = sorted(look.labels, key=lambda row: order[row.summary.label])
        judged[name] = Judged(
            look, labels, total_rows[name], len(one), one.num_labels, one.metadata
        )
        advance(0.5 / len(methods))
    numbers = comparison(
        methods, resamples=resamples, seed=seed, advance=lambda share: advance(0.4 * share)
    )
    examples = {name: maker.examples(one) for name, one in methods.items()}
    advance(0.1)
    intervals = f"95 %, Poisson bootstrap over rows, {resamples} resamples, seed {seed}"
    return _filled(
        judged,
        sources,
        {"intervals": intervals},
        comparison=numbers,
        best=best_sentence(numbers),
        candidates={name: rows for name, one in methods.items() if (rows := _candidates(one))},
        examples={name: found for name, found in examples.items() if found},
        examples_cut=maker.full,
    )


def top_page(
    datasets: Mapping[str, Dataset],
    *,
    sources: Mapping[str, Path],
    advance: Callable[[float], None],
) -> str:
    """Return the page on files that hold the most probable labels of each row."""
    judged, figures = {}, {}
    for name, dataset in datasets.items():
        each = lambda share: advance(share / len(datasets))  # noqa: E731
        found = top_summary(dataset, advance=each)
        labels = [found.row(int(number)) for number in found.by_surprise()[:MOST_LABELS]]
        figures[name] = found.figures
        rows, count = found.num_rows, len(found.names)
        judged[name] = Judged(top_first_look(found), labels, rows, rows, count, dataset.metadata)
    return _filled(judged, sources, {}, figures={n: f for n, f in figures.items() if f})


def _filled(
    judged: Mapping[str, Judged],
    sources: Mapping[str, Path],
    settings: Mapping[str, str],
    **values: object,
) -> str:
    about = {name: one.metadata for name, one in judged.items()}
    usual = dict.fromkeys(("comparison", "best", "candidates", "examples", "figures"))
    style = (files("credibly.app") / "static" / "style.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("template.html")
        .render(
            **{**usual, "examples_cut": False, **values},
            judged=judged,
            columns=COLUMNS,
            small=small_reliability,
            multiples=SMALL_MULTIPLES,
            style=Markup(style),
            made=how(about, settings) | origins(sources),
        )
    )


def environment() -> Environment:
    """Return the templates of the report."""
    require("serve", "jinja2")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("credibly.app.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _candidates(one: Predictions) -> list[list[str]]:
    """Return the models that were compared in training: name, figures, weight, remark."""
    found = one.metadata.get("candidates")
    rows = []
    for row in found if isinstance(found, list) else []:
        if not isinstance(row, dict):
            continue
        figures = [row.get(name) for name in ("nll", "map", "ace", "weight")]
        shown = [f"{value:.3f}" if isinstance(value, float) else "" for value in figures]
        rows.append([str(row.get("model", "")), *shown, str(row.get("left_out", ""))[:200]])
    return rows


def origins(sources: Mapping[str, Path]) -> dict[str, str]:
    """Return where each file lies, when it was written and what it hashes to."""
    return {f"{name}, file": _origin(path) for name, path in sources.items()}


def _origin(path: Path) -> str:
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


def how(metadata: Mapping[str, Mapping[str, Any]], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return everything needed to make the report again.

    Args:
        metadata: of the files, by the name of their method.
        settings: of the report.
    """
    import numpy as np

    about: dict[str, Any] = {
        "credibly": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **settings,
    }
    for name, each in metadata.items():
        left_out = ("labels", "candidates")  # candidates have a table of their own
        kept = {key: value for key, value in each.items() if key not in left_out}
        if isinstance(source := kept.get("data"), str):
            kind, colon, place = source.rpartition(":")
            kept["data"] = kind + colon + _shown(Path(place))
        about[name] = json.dumps(kept, ensure_ascii=False, default=str)[:4000]
    return about
