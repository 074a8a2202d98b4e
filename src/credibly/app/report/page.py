"""Fill the template. Jinja2 escapes every name that comes from a file."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly import __version__
from credibly.app.report.charts import Chart, charts, reliability_rows
from credibly.app.report.examples import ExampleMaker
from credibly.app.views.comparisons import COLUMNS, comparison
from credibly.app.views.labels import label_table
from credibly.app.views.overview import overview
from credibly.app.views.top_k import TopSummary, top_summary
from credibly.checks import require
from credibly.plot.calibration import reliability_diagram
from credibly.plot.svg_text import svg
from credibly.predictions import Dataset, Predictions
from credibly.retrieve import Joint

if TYPE_CHECKING:
    from jinja2 import Environment


def page(
    methods: Mapping[str, Predictions],
    total_rows: Mapping[str, int],
    sources: Mapping[str, Path],
    maker: ExampleMaker,
    *,
    resamples: int,
    seed: int,
    joint: Joint | None,
    advance: Callable[[float], None],
) -> str:
    """Return the whole page."""
    overviews = {
        name: overview(one, _shown(sources.get(name, Path(f"{name}.parquet"))))
        for name, one in methods.items()
    }
    advance(0.25)
    numbers = comparison(
        methods, resamples=resamples, seed=seed, advance=lambda share: advance(0.35 * share)
    )
    tables = {name: label_table(one) for name, one in methods.items()}
    advance(0.1)
    drawings = charts(methods, joint)
    advance(0.25)
    examples = {name: maker.examples(one) for name, one in methods.items()}
    advance(0.05)
    intervals = f"95 %, Poisson bootstrap over rows, {resamples} resamples, seed {seed}"
    about = {name: one.metadata for name, one in methods.items()}
    return (
        environment()
        .get_template("template.html")
        .render(
            methods=methods,
            total_rows=total_rows,
            overviews=overviews,
            columns=COLUMNS,
            comparison=numbers,
            candidates={name: rows for name, one in methods.items() if (rows := _candidates(one))},
            charts=drawings,
            labels=tables,
            examples={name: found for name, found in examples.items() if found},
            examples_cut=maker.full,
            made=how(about, {"intervals": intervals}) | origins(sources),
            version=__version__,
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


MOST_LABELS = 500
"""Labels of the table; all of them would make a page of tens of megabytes."""


def top_page(
    datasets: Mapping[str, Dataset],
    *,
    sources: Mapping[str, Path],
    advance: Callable[[float], None],
) -> str:
    """Return the whole page."""
    summaries = {}
    for name, dataset in datasets.items():
        each = lambda share: advance(0.8 * share / len(datasets))  # noqa: E731
        summaries[name] = top_summary(dataset, advance=each)
    measured = {name: found for name, found in summaries.items() if found.has_truth}
    drawings = [_reliability(measured)] if measured else []
    advance(0.2)
    metadata = {name: dataset.metadata for name, dataset in datasets.items()}
    return (
        environment()
        .get_template("top_labels.html")
        .render(
            methods=summaries,
            summaries=summaries,
            measured=measured,
            charts=drawings,
            labels={
                name: [found.label(int(number)) for number in found.by_surprise()[:MOST_LABELS]]
                for name, found in summaries.items()
            },
            most_labels=MOST_LABELS,
            made=how(metadata, {}) | origins(sources),
            version=__version__,
        )
    )


def _reliability(methods: Mapping[str, TopSummary]) -> Chart:
    ax, rows = None, []
    for name, found in methods.items():
        assert found.reliability is not None
        ax = reliability_diagram(found.reliability, name=name, ax=ax)
        rows += reliability_rows(name, found.reliability)
    assert ax is not None
    alt = "Reliability diagram of the labels held, for " + ", ".join(methods)
    columns = ["method", "bin", "count", "mean probability", "share present", "low", "high"]
    return Chart("Does 80 % mean 80 %?", alt, svg(ax, "reliability", alt), columns, rows)
