"""The report on files that hold the most probable labels of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from credibly import __version__, plot
from credibly.app.report.charts import Chart, reliability_rows
from credibly.app.report.page import environment, how, origins
from credibly.app.views import TopSummary, top_summary
from credibly.predictions import Dataset

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
        ax = plot.reliability_diagram(found.reliability, name=name, ax=ax)
        rows += reliability_rows(name, found.reliability)
    assert ax is not None
    alt = "Reliability diagram of the labels held, for " + ", ".join(methods)
    columns = ["method", "bin", "count", "mean probability", "share present", "low", "high"]
    return Chart("Does 80 % mean 80 %?", alt, plot.svg(ax, "reliability", alt), columns, rows)
