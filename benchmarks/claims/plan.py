"""Methods of a study: trials on held-out rows choose their settings, then seeds are run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.claims.cells import Cell
from benchmarks.claims.runner import Book, Record, run_all

TRIAL_SEED = 0
SEEDS = (1, 2, 3, 4, 5)


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to train in a setup (data and model); ``grid`` is what its trials choose among.

    ``like`` names another method of the setup whose chosen settings it starts from. ``by`` is the
    held-out figure to choose by: ``nll`` (lower is better) or ``map``, ``top1``, ``average-k``
    (higher is better). ``own_trials``: trials are runs of their own, of which no test row is looked
    at; else the runs of seed 0 serve, chosen among by held-out rows alone, where a run takes
    minutes.
    """

    name: str
    setup: str
    data: str
    settings: dict[str, Any]
    grid: tuple[dict[str, Any], ...] = ({},)
    by: str = "nll"
    like: str | None = None
    seeds: Sequence[int] = SEEDS
    own_trials: bool = True


def carry_out(methods: Sequence[Method], book: Book, jobs: int) -> None:
    """Trials, then those that build on them, then the seeds; seed by seed, so that a run that is
    stopped leaves whole seeds."""
    run_all(_trials([m for m in methods if m.like is None], methods, book), book, jobs)
    run_all(_trials([m for m in methods if m.like is not None], methods, book), book, jobs)
    most = max(len(method.seeds) for method in methods)
    cells = [
        Cell.of(method.data, chosen(method, methods, book), method.seeds[place])
        for place in range(most)
        for method in methods
        if place < len(method.seeds)
    ]
    run_all(cells, book, jobs)


def _trials(some: Iterable[Method], methods: Sequence[Method], book: Book) -> list[Cell]:
    return [cell for method in some for cell, _ in _candidates(method, methods, book)]


def _candidates(
    method: Method, methods: Sequence[Method], book: Book
) -> list[tuple[Cell, dict[str, Any]]]:
    if len(method.grid) == 1:
        return []
    base = _base(method, methods, book)
    settings = [{**base, **choice} for choice in method.grid]
    trial = method.own_trials
    return [(Cell.of(method.data, one, TRIAL_SEED, trial=trial), one) for one in settings]


def _base(method: Method, methods: Sequence[Method], book: Book) -> dict[str, Any]:
    if method.like is None:
        return method.settings
    other = next(m for m in methods if (m.name, m.setup) == (method.like, method.setup))
    return {**chosen(other, methods, book), **method.settings}


def chosen(method: Method, methods: Sequence[Method], book: Book) -> dict[str, Any]:
    """The settings whose trial was best on held-out rows."""
    candidates = _candidates(method, methods, book)
    if not candidates:
        return {**_base(method, methods, book), **method.grid[0]}

    def worth(pair: tuple[Cell, dict[str, Any]]) -> float:
        record = book.get(pair[0])
        if record is None:
            raise LookupError(f"the trials of {method.name} in {method.setup} were not run")
        if "failed" in record:
            return float("-inf")
        value = record["held_out"][method.by]
        return -value if method.by == "nll" else value

    return max(candidates, key=worth)[1]


def records(method: Method, methods: Sequence[Method], book: Book) -> dict[int, Record]:
    """The finished runs of a method, by seed."""
    settings = chosen(method, methods, book)
    found = {seed: book.get(Cell.of(method.data, settings, seed)) for seed in method.seeds}
    return {seed: record for seed, record in found.items() if record is not None}
