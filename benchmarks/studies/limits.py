"""How far standardised features may go: limits compared on training rows that are left out.

    python -m benchmarks.studies.limits [SET …] [--table | --write]

``linear`` and ``mlp`` of ``--model auto`` are trained with each limit (in deviations) on folds of
the training rows and measured on the rows left out; the test rows take no part. Small sets have
three folds of five, those of 4,000 rows and more one. Of small sets the sum of models that auto
comes to, on all five folds, is compared for the two smallest limits. Each (set, limit, model) is a
line of ``benchmarks/studies/limits.jsonl``; the same command continues where it stopped.
``--write`` puts the tables into benchmarks/results/limits.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

from benchmarks.studies.default import SETS  # noqa: E402 - after the number of threads is set
from benchmarks.studies.documents import RECORD, put_tables  # noqa: E402
from benchmarks.studies.training import data_file, markdown  # noqa: E402

RECORDS = Path(__file__).with_suffix(".jsonl")
LIMITS = (math.inf, 8.0, 5.0, 3.0, 2.0)
SUM_LIMITS = (3.0, 2.0)
MODELS = ("linear", "mlp")
SMALL = ("emotions", "medical", "yeast", "scene")
MANY_ROWS = 4000
"""From here on one fold is left out; below, three."""


def cells(sets: list[str]) -> list[tuple[str, str, float]]:
    """Every set, model and limit."""
    alone = [(name, model, limit) for name in sets for limit in LIMITS for model in MODELS]
    return alone + [(x, "auto", limit) for x in sets if x in SMALL for limit in SUM_LIMITS]


def line_of(name: str, model: str, limit: float) -> dict[str, Any]:
    """One model of one set with one limit."""
    import credibly as cr
    from credibly.models import network
    from credibly.train import recipe, resolve
    from credibly.train.auto import FIT, choose, problem_of
    from credibly.train.fitting import build_loss
    from credibly.train.linear import Folds
    from credibly.train.run_folder import pooled

    data = cr.data.load(data_file(f"{name}.npz"), seed=0)
    settings = resolve(recipe(folds=5), data)
    rows = pooled(data, settings)
    loss = build_loss(settings, data, len(rows.part("train")))
    problem = problem_of(rows, loss, settings, 0)
    network.LIMIT = limit
    if model == "auto":
        figures = problem.figures(choose(problem, settings).scores)
    else:
        folds = 1 if len(problem.targets) >= MANY_ROWS else 3
        parts = Folds(problem.folds.parts[:folds])
        figures = FIT[model](dataclasses.replace(problem, folds=parts)).figures
    figures = {key: figures[key] for key in ("nll", "map")}
    return {"set": name, "model": model, "limit": _named(limit), **figures}


def _named(limit: float) -> float | None:
    """Return a limit as JSON has it: None for none."""
    return None if math.isinf(limit) else limit


def records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def tables() -> str:
    """NLL × 1000 and mAP by set and limit: of both models, and of the sum."""
    found = {(line["set"], line["model"], line["limit"]): line for line in records()}
    return "\n\n".join(
        _table(found, models, limits)
        for models, limits in ((MODELS, LIMITS), (("auto",), SUM_LIMITS))
    )


def _table(found: dict[Any, Any], models: tuple[str, ...], limits: tuple[float, ...]) -> str:
    rows = []
    for name in SETS:
        lines = [[found.get((name, x, _named(limit))) for x in models] for limit in limits]
        shown = [" / ".join(map(_shown, own)) if all(own) else "" for own in lines]
        if any(shown):
            rows.append([name, *shown])
    named = ["none" if math.isinf(limit) else f"{limit:g}" for limit in limits]
    return markdown([f"{' / '.join(models)}, limit", *named], rows)


def _shown(line: dict[str, Any]) -> str:
    return f"{1000 * line['nll']:.1f} ({100 * line['map']:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.limits")
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--table", action="store_true", help="print the table of the records")
    parser.add_argument("--write", action="store_true", help="write it into the page")
    given = parser.parse_args()
    if given.table:
        print(tables())
    elif given.write:
        put_tables(f"{RECORD}/limits.md", "limits", tables())
    else:
        done = {(line["set"], line["model"], line["limit"]) for line in records()}
        for name, model, limit in cells(given.sets):
            if (name, model, _named(limit)) not in done:
                line = json.dumps(line_of(name, model, limit))
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
