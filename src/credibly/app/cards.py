"""Cards that notebooks show for predictions and results: the words and charts of the web app."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from credibly.app.charts import overview_charts, reliability_lines, small_reliability, swatch
from credibly.app.rendering import environment, static_text
from credibly.app.report import thumbnail
from credibly.app.statistics.overview import first_look
from credibly.checks import InputError
from credibly.notebook import ROWS, counted, html_table

if TYPE_CHECKING:
    from credibly.pipeline import Pipeline
    from credibly.predictions import Predictions
    from credibly.retrieve.answer import Answer
    from credibly.review.issues import LabelIssues
    from credibly.workflows.calibrated_scores import CalibratedScores
    from credibly.workflows.evaluation import Evaluation

CELLS = 2**20
"""Probabilities that a card is made from; of more rows a random part is taken."""

LABELS = 10
"""Labels drawn on a card, those that are most off."""


def predictions(one: Predictions, table: str) -> str:
    """Return the verdict, its charts, the labels that are most off, and ``table`` below."""
    most = max(1, CELLS // max(1, len(one.labels)))
    part = one
    if len(one) > most:
        part = one[np.sort(np.random.default_rng(0).choice(len(one), most, replace=False))]
    look = first_look(part, "predictions.parquet")
    charts = overview_charts(look)
    charts.pop("lift", None)
    return _card(
        "predictions",
        verdict=look.verdict,
        facts=look.facts,
        charts=charts.values(),
        labels=[row for row in look.labels[:LABELS] if row.diagram is not None],
        small=small_reliability,
        note=f"On {len(part):,} of {len(one):,} rows, drawn at random." if part is not one else "",
        table=Markup(table),
    )


def evaluation(one: Evaluation, table: str) -> str:
    """Return the metrics that count as tiles, all of them in ``table``, and the worst labels."""
    return _card(
        "evaluation",
        title=f"{one.path}: {counted(one.rows, 'row')}, {counted(len(one.labels), 'label')}",
        numbers=[(name, value, one.intervals.get(name)) for name, value in one.shown().items()],
        table=Markup(table),
    )


def calibrated(one: CalibratedScores, table: str) -> str:
    """Return what calibration changed, and the reliability of every stage."""
    diagrams = {name: vars(each) for name, each in one.diagrams.items()}
    names = [(swatch(place), name) for place, name in enumerate(diagrams)]
    return _card(
        "calibrated",
        change=one.change,
        against=one.compared,
        calibrator=one.calibrator.name,
        rows=len(one.held_out),
        advice=one.advice,
        drawing=reliability_lines(diagrams),
        legend=names,
        table=Markup(table),
    )


def pipeline(one: Pipeline) -> str:
    """Return the way from scores to label sets as a diagram."""
    loss = one.loss_name or ("" if one.loss is None else one.loss.name)
    values = "probabilities" if one.link == "probabilities" else "log-odds"
    link = {"own": f"of {loss}"}.get(one.link, f"{one.link} ({loss})")
    steps = [
        ("Link", link if loss else f"none: the scores are {values}", "log-odds"),
        ("Calibrator", "none" if one.calibrator is None else repr(one.calibrator), "probabilities"),
        ("Decision", repr(one.rule), "label sets"),
    ]
    return _card("pipeline", steps=steps, labels=one.labels)


def answer(one: Answer, table: str) -> str:
    """Return the best rows: as tiles where one has an image, else as ``table``."""
    tiles = [(hit, _picture(hit.path)) for hit in one.hits[:ROWS]]
    shown = tiles if any(image for _, image in tiles) else []
    more = len(one.hits) - len(shown)
    return _card("answer", answer=one, shown=shown, more=more, table=Markup(table))


def issues(one: LabelIssues) -> str:
    """Return how many labels are probably wrong, and the first of them."""
    rows = [
        [each.id, each.label, each.probability, {1: "yes", 0: "no", None: "–"}[each.given]]
        for each in sorted(one.issues, key=lambda each: each.given is None)
    ]
    unknown = sum(each.given is None for each in one.issues)
    heads = ["id", "label", "model says", "annotated"]
    table = html_table("Annotated labels first, the surest first", heads, rows)
    return _card("issues", issues=one, unknown=unknown, table=Markup(table))


def _picture(path: str | None) -> str:
    if path is None or not Path(path).is_file():
        return ""
    try:
        return thumbnail(Path(path))[0]
    except InputError:  # no image, or damaged
        return ""


def _card(name: str, **values: object) -> str:
    style = Markup(static_text("charts.css").replace(":root", "&"))
    return environment().get_template("notebook.html").render(card=name, style=style, **values)
