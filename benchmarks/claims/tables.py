"""From finished runs to tables: means with intervals, paired differences, ranks over data sets."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.claims.plan import Method, records
from benchmarks.claims.runner import Book
from benchmarks.studies.training import markdown

LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a page, folded, without the rows that were not run; ``write`` keeps all as CSV."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""

    def __str__(self) -> str:
        rows = [row for row in self.rows if any("±" in cell for cell in row) or "–" not in row]
        rows = [row for row in rows if "– / –" not in row]
        if not rows:
            return f"**{self.title}**: not run."
        summary = f'<details markdown="1">\n<summary>{self.title}</summary>'
        file = f"`benchmarks/claims/results/tables/{self.name}.csv`"
        parts = [summary, markdown(self.header, rows), self.note, file, "</details>"]
        return "\n\n".join(part for part in parts if part)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self.header, *self.rows])


@dataclasses.dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its interval; ``n`` seeds."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def sign(self) -> int:
        """−1 or 1 where the interval leaves zero out, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def __str__(self) -> str:
        if self.n == 0:
            return "–"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class Results:
    """The finished runs of a study, by setup, method and seed."""

    def __init__(self, methods: Sequence[Method], book: Book) -> None:
        self.methods, self.book = methods, book
        self._found: dict[tuple[str, str], dict[int, Any]] = {}
        for method in methods:
            try:
                found = records(method, methods, book)
            except LookupError:  # its trials are not there yet
                found = {}
            self._found[method.setup, method.name] = found

    def by_seed(self, setup: str, method: str, *path: str) -> dict[int, Any]:
        """One figure by seed; seeds whose run failed or lacks it are left out."""
        values: dict[int, Any] = {}
        for seed, record in self._found.get((setup, method), {}).items():
            value: Any = record.get("test")
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                values[seed] = value
        return values

    def held_out(self, setup: str, method: str, figure: str) -> dict[int, float]:
        """A figure of the held-out rows by seed."""
        found = self._found.get((setup, method), {})
        return {s: record["held_out"][figure] for s, record in found.items() if "test" in record}

    def values(self, setup: str, method: str, *path: str, scale: float = 100) -> dict[int, float]:
        """One number by seed, scaled."""
        found = self.by_seed(setup, method, *path)
        return {seed: scale * float(value) for seed, value in found.items()}

    def data_set(self, setup: str) -> str:
        """The data set of a setup: draws, features and some of the classes are the same set."""
        data = next(method.data for method in self.methods if method.setup == setup)
        if data.startswith("synthetic"):
            return data
        return data.partition(":")[0].removesuffix("-images").removesuffix("-features")

    def seconds(self, setup: str, method: str) -> dict[int, float]:
        """CPU time of each finished run, by seed."""
        found = self._found.get((setup, method), {})
        return {seed: record["seconds"] for seed, record in found.items() if "test" in record}

    def settings(self, setup: str, method: str) -> dict[str, Any]:
        """What the trials chose; empty where nothing was run."""
        found = self._found.get((setup, method), {})
        return next(iter(found.values()))["settings"] if found else {}

    def failed(self) -> list[str]:
        """Runs that did not finish, and why."""
        return [
            f"{setup}, {name}, seed {seed}: {record['failed']}"
            for (setup, name), found in self._found.items()
            for seed, record in found.items()
            if "failed" in record
        ]


def mean(values: dict[int, float]) -> float:
    return float(np.mean(list(values.values()))) if values else math.nan


def spread(values: dict[int, float], digits: int = 1) -> str:
    """Mean ± half of the interval over seeds (Student)."""
    if not values:
        return "–"
    numbers = list(values.values())
    if len(numbers) == 1:
        return f"{numbers[0]:.{digits}f}"
    half = stats.t.ppf((1 + LEVEL) / 2, len(numbers) - 1) * stats.sem(numbers)
    return f"{np.mean(numbers):.{digits}f} ± {half:.{digits}f}"


def difference(one: dict[int, float], other: dict[int, float]) -> Difference:
    """``one`` − ``other`` over the seeds both have."""
    gaps = np.array([one[seed] - other[seed] for seed in one if seed in other])
    if len(gaps) < 2:
        return Difference(float(gaps.mean()) if len(gaps) else math.nan, -math.inf, math.inf, 0)
    half = stats.t.ppf((1 + LEVEL) / 2, len(gaps) - 1) * stats.sem(gaps)
    middle = float(gaps.mean())
    return Difference(middle, middle - half, middle + half, len(gaps))


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Mean ranks over data sets (1 is best), Friedman's p, Nemenyi's critical difference."""

    means: dict[str, float]
    p: float
    critical: float
    blocks: int


def ranks(names: Sequence[str], blocks: Sequence[Sequence[float]]) -> Ranks:
    """``blocks`` holds a figure (lower is better) a method, for each data set."""
    table = np.array([block for block in blocks if np.isfinite(block).all()])
    if len(table) < 3:
        return Ranks(dict.fromkeys(names, math.nan), math.nan, math.nan, len(table))
    each = stats.rankdata(table, axis=1)
    count = len(names)
    p = stats.friedmanchisquare(*table.T).pvalue
    q = float(stats.studentized_range.ppf(LEVEL, count, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(count * (count + 1) / (6 * len(table)))
    return Ranks(dict(zip(names, each.mean(axis=0), strict=True)), float(p), critical, len(table))
