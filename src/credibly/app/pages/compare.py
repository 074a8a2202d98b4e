"""Runs or files beside each other, measured once, in the background, on the rows they share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from markupsafe import Markup
from pydantic import Field

from credibly import metrics
from credibly.app.charts import Line, line_chart, reliability_lines, small_reliability, swatch
from credibly.app.rendering import column_decimals, decimals
from credibly.app.server.background import NotReady, Pending
from credibly.app.server.responses import page, state_of, table_response
from credibly.app.statistics.comparisons import (
    COLUMNS,
    Cell,
    Difference,
    LabelDifferences,
    SummaryColumn,
    best_sentence,
    comparison_table,
    label_differences,
    paired_difference,
)
from credibly.app.statistics.labels import LabelSummary, label_atlas
from credibly.app.statistics.overview import Verdict, verdict
from credibly.app.store.runs import RunState
from credibly.app.store.store import FileQuery, Served
from credibly.arrays import plain
from credibly.checks import InputError
from credibly.metrics.calibration import ReliabilityDiagram
from credibly.metrics.intervals import Draws, summary_draws
from credibly.predictions import Predictions
from credibly.retrieve.answer import Answer
from credibly.targets import Targets
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.app.server.application import AppState

RESAMPLES = 200
CELLS = 2**22
"""Probabilities of each file that numbers are measured on; all files on the same rows."""
FEWEST_ROWS = 1_000
FEWEST_SHARED = 30
"""Files that share fewer rows with the first are not compared with it."""
PAIRED = tuple(column for column in COLUMNS if column.name in ("NLL", "ACE", "mAP@y"))
_OF_LABELS = {"NLL": "log_loss", "ACE": "error", "mAP@y": "average_precision"}


@dataclass(frozen=True)
class SharedRows:
    """What files have in common.

    Attributes:
        places: by number of file, where the rows that are compared lie in it, in one order.
        labels: of all of them, in the order of the first.
        total: rows that they share, before a sample was taken.
        left_out: by number of file, why it is not compared.
    """

    places: dict[int, Array]
    labels: list[str]
    total: int
    left_out: dict[int, str]

    @property
    def rows(self) -> int:
        """Return how many rows are compared."""
        return len(next(iter(self.places.values()))) if self.places else 0


@dataclass(frozen=True)
class Measured:
    """The numbers of one file on the shared rows."""

    draws: Draws
    labels: list[LabelSummary]
    verdict: Verdict
    diagram: ReliabilityDiagram


@dataclass(frozen=True)
class ComparedFiles:
    """What is known so far about the files, by their numbers.

    Attributes:
        shared: which rows are compared.
        measured: the files that are measured already.
        pending: how many are still to be measured.
    """

    shared: SharedRows
    measured: dict[int, Measured] = field(default_factory=dict)
    pending: int = 0

    def cells(self) -> dict[int, list[Cell]]:
        """Return the numbers of each file, the best of each column marked where it is clear."""
        return comparison_table({number: each.draws for number, each in self.measured.items()})

    def difference(self, first: int, second: int, column: SummaryColumn) -> Difference:
        """Return a number of one file minus that of another."""
        return paired_difference(self.measured[first].draws, self.measured[second].draws, column)

    def of_labels(self, number: int, column: SummaryColumn) -> Array:
        """Return a number of every label, as ``column`` measures it."""
        name = _OF_LABELS[column.name]
        return np.array([vars(each)[name] for each in self.measured[number].labels])


@dataclass(frozen=True)
class Pair:
    """Two files, row by row.

    Attributes:
        differences: log loss of each label, the first file minus the second.
        first, second: probabilities of the shared rows.
    """

    differences: LabelDifferences
    first: Array
    second: Array

    def sets_differ(self, threshold: np.float64) -> Array:
        """Return, by label, the share of rows that only one of the files selects."""
        limit = threshold.astype(self.first.dtype)
        return ((self.first >= limit) != (self.second >= limit)).mean(0)


class Comparing:
    """Measures files in a thread of its own; whoever asks sees what is known so far.

    A file is measured once per set of shared rows: only new files cost time, as long as they hold
    the same rows.
    """

    def __init__(self, files: Sequence[Served]) -> None:
        self._files = files
        self._lock = Lock()
        self._count = -1
        self._shared = SharedRows({}, [], 0, {})
        self._measured: dict[int, Measured] = {}
        self._work = Pending(self._measure_all, "measuring")
        self.pair = lru_cache(maxsize=2)(self._pair)

    def known(self, wait: float = 0.0) -> ComparedFiles:
        """Return what is known about all files; wait for it in its first seconds."""
        with self._lock:
            if self._work.done and self._count != len(self._files):
                self._work = Pending(self._measure_all, "measuring")
            work = self._work
        work.begin()
        with suppress(NotReady):
            work.wait(max(wait - work.seconds, 0.0))  # who asks again is not kept again
        with self._lock:
            pending = len(self._shared.places) - len(self._measured)
            if self._count != len(self._files):
                pending = max(pending, 1)
            return ComparedFiles(self._shared, dict(self._measured), pending)

    def _measure_all(self) -> None:
        while self._count != (count := len(self._files)):
            shared = shared_rows(self._files[:count])
            with self._lock:
                self._measured = self._measured if _same_rows(shared, self._shared) else {}
                self._shared = shared
                self.pair.cache_clear()
            for number in [n for n in shared.places if n not in self._measured]:
                found = _measure(self._rows(number))
                with self._lock:
                    self._measured[number] = found
            self._count = count

    def _rows(self, number: int) -> Predictions:
        scan = self._files[number].scan
        return scan.read(labels=self._shared.labels, rows=self._shared.places[number])

    def _pair(self, first: int, second: int) -> Pair:
        one, other = self._rows(first), self._rows(second)
        assert one.targets is not None, "only files with truth are compared"
        p, q = one.probabilities, other.probabilities
        return Pair(label_differences(p, q, one.targets), p, q)


def shared_rows(files: Sequence[Served]) -> SharedRows:
    """Return which rows to compare files on, and which files cannot be compared.

    Files with the labels of the first one with truth are compared on the rows that all of them
    hold, or on a fixed random part of those.
    """
    left_out: dict[int, str] = {}
    hashes: dict[int, Array] = {}
    common = np.empty(0, dtype=np.int64)
    labels: list[str] = []
    of = ""
    for number, file in enumerate(files):
        if reason := _unlike(file, labels, of):
            left_out[number] = reason
            continue
        ids = file.scan.hashed_ids()
        if not hashes:
            labels, of, common = file.labels, file.name, ids
        elif not np.array_equal(common, ids):
            both = common[np.isin(common, ids)]
            if len(both) < min(FEWEST_SHARED, len(common)):
                left_out[number] = f"shares {len(both)} rows with the others; too few to compare"
                continue
            common = both
        hashes[number] = ids
    chosen = _sample(common, len(labels))
    places = {number: _places(chosen, ids) for number, ids in hashes.items()}
    return SharedRows(places, labels, len(common), left_out)


def _unlike(file: Served, labels: list[str], of: str) -> str:
    """Return why a file cannot be compared; empty where it can."""
    if not file.scan.every_label:
        return "holds only the most probable labels of each row"
    if not file.has_truth:
        return "holds no truth"
    if labels and sorted(file.labels) != sorted(labels):
        return f"has other labels than {of}"
    return ""


def _sample(ids: Array, labels: int) -> Array:
    """Return the ids to compare, in the same order: all of them, or a fixed random part."""
    most = max(FEWEST_ROWS, CELLS // max(1, labels))
    if len(ids) <= most:
        return ids
    return ids[np.sort(np.random.default_rng(0).choice(len(ids), most, replace=False))]


def _places(wanted: Array, ids: Array) -> Array:
    order = np.argsort(ids, kind="stable")
    return order[np.searchsorted(ids, wanted, sorter=order)]


def _same_rows(one: SharedRows, other: SharedRows) -> bool:
    """Return whether the files of the second are compared on the same rows in the first."""
    return one.labels == other.labels and all(
        number in one.places and np.array_equal(one.places[number], places)
        for number, places in other.places.items()
    )


def _measure(rows: Predictions) -> Measured:
    assert rows.targets is not None, "only files with truth are compared"
    p, truth = rows.probabilities, Targets(rows.targets)
    draws = summary_draws(p, truth, rows.scores, resamples=RESAMPLES, seed=0)
    atlas = label_atlas(rows.labels, p, rows.targets)
    return Measured(draws, atlas, verdict(rows, atlas), metrics.reliability(p, truth))


router = APIRouter()

WAIT = 4.0
"""Seconds that a page waits for numbers; then it shows those that are there."""
LABELS = 24
MATRIX = 12
"""Runs up to which all pairs are shown in one table."""
CURVES = {
    "nll": "Log loss of held-out rows",
    "map": "mAP of held-out rows",
    "ace": "Calibration error (ACE) of held-out rows",
    "loss": "Training loss (each loss has its own scale)",
}
By = Literal["NLL", "ACE", "mAP@y"]


class CompareQuery(FileQuery):
    """Two of the files to look at closely, by which number, and a query to ask both."""

    first: int | None = Field(None, ge=0, le=999)
    second: int | None = Field(None, ge=0, le=999)
    by: By = "NLL"
    q: str = Field("", max_length=2000)
    top: int = Field(12, ge=1, le=200)


class PairTable(CompareQuery):
    """The labels of two files as a table."""

    format: Literal["json", "csv"] = "json"


@dataclass(frozen=True)
class LabelRow:
    """One label in two files.

    Attributes:
        label: its name.
        first, second: the number asked for; NaN where it is not defined.
        low, high: 95 % interval of the difference in log loss; NaN for other numbers.
        better: 1 where the first file is clearly better, −1 where the second is, 0 otherwise.
        differ: share of rows that only one of the files selects.
    """

    label: str
    first: float
    second: float
    low: float
    high: float
    better: int
    differ: float

    @property
    def difference(self) -> float:
        """Return the first value minus the second."""
        return self.first - self.second


@router.get("/compare")
def compare_page(request: Request, asked: Annotated[CompareQuery, Query()]) -> HTMLResponse:
    state = state_of(request)
    runs = state.run_states()
    if len(runs) < 2 and state.runs is None:
        raise InputError(
            "comparing needs two files or a folder of runs: `credibly serve A.parquet B.parquet`, "
            "`credibly serve runs/`."
        )
    known = state.comparing.known(WAIT)
    cells = known.cells()
    column = next(each for each in PAIRED if each.name == asked.by)
    chosen = _chosen(asked, known)
    labels, pair = [], None
    if chosen is not None:
        pair = state.comparing.pair(*chosen)
        labels = _label_rows(known, pair, chosen, column, state.store.rule(asked).accept_from)
    matrix = _matrix(known, column)
    answers, problem = _answers(state, asked, chosen)
    return page(
        request,
        "compare.html",
        400 if problem else 200,
        asked=asked,
        runs=runs,
        names=[file.name for file in state.files],
        known=known,
        cells=cells,
        columns=COLUMNS,
        best=best_sentence({state.files[n].name: each for n, each in cells.items()}),
        column=column,
        paired=PAIRED,
        chosen=chosen,
        pair=pair,
        against=_against(known, chosen),
        matrix=matrix,
        matrix_places=column_decimals([[x] for row in matrix.values() for x in row.values()]),
        labels=_drawn(known, labels[:LABELS], chosen) if chosen else [],
        label_places={
            "value": decimals([x for row in labels for x in (row.first, row.second)]),
            "change": decimals([x for row in labels for x in (row.difference, row.low, row.high)]),
        },
        total_labels=len(labels),
        reliability=reliability_lines(
            {state.files[n].name: vars(each.diagram) for n, each in known.measured.items()},
            list(known.measured),
            each="file",
        ),
        curves=_curves(runs),
        swatch=swatch,
        tag=_tag(state, known),
        unfinished=any(not each.finished for each in runs) or known.pending > 0,
        answers=answers,
        problem=problem,
    )


def _tag(state: AppState, known: ComparedFiles) -> str:
    runs = "" if state.runs is None else state.runs.tag()
    return f'"{runs}-{len(state.files)}-{len(known.measured)}-{known.pending}"'


def _chosen(asked: CompareQuery, known: ComparedFiles) -> tuple[int, int] | None:
    """Return the two files to look at closely; None while fewer than two are measured."""
    there = list(known.measured)
    for name in ("first", "second"):
        number = getattr(asked, name)
        if number is not None and number in known.shared.left_out:
            raise InputError(f"file {number} is not compared: {known.shared.left_out[number]}.")
        if number is not None and number not in known.shared.places and not known.pending:
            raise InputError(f"there is no file {number} to compare; there are {there}.")
    if len(there) < 2:
        return None
    first = asked.first if asked.first in there else next(n for n in there if n != asked.second)
    others = [number for number in there if number != first]
    return first, asked.second if asked.second in others else others[0]


def _against(known: ComparedFiles, chosen: tuple[int, int] | None) -> dict[int, list[Difference]]:
    """Return the differences of every file to the first of the two."""
    if chosen is None:
        return {}
    reference = chosen[0]
    return {
        number: [known.difference(number, reference, column) for column in PAIRED]
        for number in known.measured
        if number != reference
    }


def _matrix(known: ComparedFiles, column: SummaryColumn) -> dict[int, dict[int, Difference]]:
    """Return the differences of all pairs in one number; empty with too many or too few files."""
    there = list(known.measured)
    if not 2 < len(there) <= MATRIX:
        return {}
    return {
        one: {other: known.difference(one, other, column) for other in there if other != one}
        for one in there
    }


def _label_rows(
    known: ComparedFiles,
    pair: Pair,
    chosen: tuple[int, int],
    column: SummaryColumn,
    limit: np.float64,
) -> list[LabelRow]:
    """Return every label, the largest difference first."""
    first, second = (known.of_labels(number, column) for number in chosen)
    apart = np.nan_to_num(np.abs(first - second), nan=-1.0)
    differ = pair.sets_differ(limit)
    nothing = np.full(len(first), np.nan)
    found = pair.differences
    low, high, better = (
        (found.low, found.high, found.better)
        if column.name == "NLL"
        else (nothing, nothing, np.zeros(len(first), dtype=int))
    )
    columns = (first, second, low, high, better, differ)
    return [
        LabelRow(known.shared.labels[t], *(column[t].item() for column in columns))
        for t in np.argsort(-apart, kind="stable").tolist()
    ]


def _drawn(
    known: ComparedFiles, rows: list[LabelRow], chosen: tuple[int, int]
) -> list[tuple[LabelRow, Markup]]:
    """Return rows with the reliability diagrams of both files, over each other."""
    places = {name: t for t, name in enumerate(known.shared.labels)}

    def drawing(label: str) -> Markup:
        found = [known.measured[number].labels[places[label]].diagram for number in chosen]
        return small_reliability(*(each for each in found if each is not None), styles=chosen)

    return [(row, drawing(row.label)) for row in rows]


def _curves(runs: list[RunState]) -> dict[str, Markup]:
    """Return one chart per number of the logs."""
    logged = [(place, run) for place, run in enumerate(runs) if run.epochs]
    found = {}
    for figure, words in CURVES.items():
        lines = []
        for place, run in logged:
            points = [
                (float(each["epoch"]), float(each[figure]))
                for each in run.epochs
                if isinstance(each.get(figure), (int, float))
            ]
            best = run.epochs[-1].get("best_epoch")
            style = place if run.file is None else run.file
            marked = float(best) if isinstance(best, int) else None
            lines.append(Line(run.name, style, points, marked))
        last = max((x for line in lines for x, _ in line.points), default=1.0)
        title = f"{words} over epochs"
        drawing = line_chart(lines, title, "epoch", (1.0, max(last, 2.0)))
        if drawing:
            found[words] = drawing
    return found


def _answers(
    state: AppState, asked: CompareQuery, chosen: tuple[int, int] | None
) -> tuple[list[tuple[int, Answer]], str]:
    """Return the same query asked of both files, or what is wrong with it."""
    if not asked.q.strip():
        return [], ""
    numbers = chosen or tuple(range(min(2, len(state.files))))
    try:
        return [(n, state.file(n, False).search(asked.q, asked.top)) for n in numbers], ""
    except InputError as error:
        return [], str(error)


@router.get("/api/runs")
def runs(request: Request) -> Response:
    """All runs and files: epochs from their logs, and numbers on shared rows with intervals.

    Answers with 304 to ``If-None-Match`` while nothing has changed.
    """
    state = state_of(request)
    listed = state.run_states()
    known = state.comparing.known()
    tag = _tag(state, known)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    cells = known.cells()
    numbers = {
        str(number): {
            column.name: {"estimate": cell.estimate, "low": cell.low, "high": cell.high}
            for column, cell in zip(COLUMNS, cells[number], strict=True)
            if isfinite(cell.estimate)
        }
        for number in known.measured
    }
    document = {
        "runs": [plain(each.to_dict()) for each in listed],
        "numbers": numbers,
        "rows": known.shared.rows,
        "left_out": {str(number): why for number, why in known.shared.left_out.items()},
        "pending": known.pending,
    }
    return JSONResponse(document, headers={"etag": tag})


@router.get("/api/compare/labels")
def compared_labels(request: Request, asked: Annotated[PairTable, Query()]) -> Response:
    """Every label in two files, the largest difference first; as JSON or CSV."""
    state = state_of(request)
    if asked.first is not None and asked.first == asked.second:
        raise InputError(f"`first` and `second` must be two files; got {asked.first} twice.")
    known = state.comparing.known(WAIT)
    chosen = _chosen(asked, known)
    if chosen is None:
        raise InputError("fewer than two files are measured so far; ask again soon.")
    column = next(each for each in PAIRED if each.name == asked.by)
    pair = state.comparing.pair(*chosen)
    rows = _label_rows(known, pair, chosen, column, state.store.rule(asked).accept_from)
    listed = [asdict(row) for row in rows]
    return table_response(asked.format, "labels", list(listed[0]), listed)
