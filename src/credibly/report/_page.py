"""Filling the template. Jinja2 escapes every name that comes from a file."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any

from credibly import __version__
from credibly.predictions import Predictions
from credibly.report._charts import charts
from credibly.report._numbers import HEADLINES, comparison, label_rows
from credibly.report._verdict import verdict


def page(methods: Mapping[str, Predictions], *, resamples: int, seed: int) -> str:
    """The whole page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("credibly.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html").render(
        methods=methods,
        verdicts={name: verdict(one) for name, one in methods.items()},
        headlines=HEADLINES,
        comparison=comparison(methods, resamples=resamples, seed=seed),
        charts=charts(methods),
        labels={name: label_rows(one) for name, one in methods.items()},
        made=_how(methods, resamples, seed),
        version=__version__,
    )


def _how(methods: Mapping[str, Predictions], resamples: int, seed: int) -> dict[str, Any]:
    """Everything needed to make the report again."""
    import numpy as np

    about: dict[str, Any] = {
        "credibly": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "intervals": f"95 %, bootstrap over rows, {resamples} resamples, seed {seed}",
    }
    for name, one in methods.items():
        kept = {key: value for key, value in one.metadata.items() if key != "labels"}
        about[name] = json.dumps(kept, ensure_ascii=False, default=str)[:4000]
    return about
