"""Looking at single rows and entries of the served files: errors, one item, what lies beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import cast
from urllib.parse import parse_qsl, urlencode

import numpy as np

from credibly.app.served.address import EntryQuery, FileQuery, RowQuery, Rule, parse_view, rule_of
from credibly.app.served.entries import (
    Entry,
    EntryList,
    Item,
    Neighbour,
    Other,
    entries_at,
    find_entries,
    item_at,
    neighbours,
)
from credibly.app.served.files import ServedPredictions
from credibly.checks import InputError

VIEWS = 32  # views remembered, each at most 160 kB
MOST_BYTES = 2 * 2**30  # of files in memory, as far as there are more than two
SEARCHED = 200  # rows of a search that next and previous walk through


@dataclass(frozen=True)
class Beside:
    """The rows before and after one in a list, and its place there, from 1."""

    previous: str | None
    following: str | None
    place: int
    total: int
    back: str


class Workbench:
    """Views of the served files, worked out when asked for; the latest are remembered."""

    def __init__(self, files: Sequence[ServedPredictions]) -> None:
        self.files = files
        remembered = lru_cache(maxsize=VIEWS)(self._find)  # a view is frozen, so it is a key
        self._found = cast(Callable[[EntryQuery], EntryList], remembered)
        self._other = lru_cache(maxsize=2)(self._match)
        self._used: dict[int, None] = {}
        self._lock = Lock()

    def file(self, number: int, raw: bool) -> ServedPredictions:
        """Return one of the files, before calibration if asked."""
        if not self.files:
            raise InputError("no run has predictions yet; /compare shows how far each has come.")
        if not 0 <= number < len(self.files):
            raise InputError(f"there are {len(self.files)} predictions files; got number {number}.")
        chosen = self.files[number]
        self._use(number)
        if not raw:
            return chosen
        before = chosen.uncalibrated
        if before is None:
            raise InputError(
                f"{chosen.name} does not hold scores and a calibrator, so there is no state before "
                "calibration to show."
            )
        return before

    def _use(self, number: int) -> None:
        """Note that a file is looked at; those looked at longest ago leave memory.

        At least two stay, since views compare two.
        """
        with self._lock:
            self._used.pop(number, None)
            self._used[number] = None
            while len(self._used) > 2 and sum(map(self._size, self._used)) > MOST_BYTES:
                oldest = next(iter(self._used))
                del self._used[oldest]
                self.files[oldest].release()
                self._other.cache_clear()

    def _size(self, number: int) -> int:
        return 5 * self.files[number].scan.num_rows * len(self.files[number].labels)

    def rule(self, asked: FileQuery) -> Rule:
        """Return the rule that an address asks for."""
        chosen = self.file(asked.file, asked.raw)
        fitted = None
        if asked.miss is None and asked.average_size is not None:
            fitted = chosen.decision(round(asked.average_size, 2), chosen.labels)
        return rule_of(asked, fitted, chosen.labels)

    def found(self, asked: EntryQuery) -> EntryList:
        """Return the entries of a view."""
        if asked.label:
            self.file(asked.file, asked.raw).check(asked.label)
        if asked.kind == "disagreement" and len(self.files) < 2:
            raise InputError("disagreement needs two files: `credibly serve A.parquet B.parquet`.")
        if asked.low > asked.high:
            raise InputError(f"`low` must not be above `high`; got {asked.low} and {asked.high}.")
        return self._found(asked.unpaged)

    def entries(self, asked: EntryQuery, start: int, stop: int) -> list[Entry]:
        """Return some entries of a view."""
        found = self.found(asked)
        index = self.file(asked.file, asked.raw).index
        which = slice(start, min(stop, len(found)))
        return entries_at(index, self.rule(asked), self._compared(asked), found, which)

    def entry(self, asked: FileQuery, id: str, label: str) -> Entry:
        """Return one entry."""
        chosen = self.file(asked.file, asked.raw)
        place = chosen.index.place(id)
        if place is None:
            raise InputError(f"{chosen.name} has no row with the id {id!r}.")
        where = EntryList(1, np.array([chosen.column_of(label)]), np.array([place]))
        return entries_at(chosen.index, self.rule(asked), None, where, slice(None))[0]

    def item(self, asked: RowQuery) -> Item:
        """Return one row."""
        chosen = self.file(asked.file, asked.raw)
        place = chosen.index.place(asked.id)
        if place is None:
            raise InputError(f"{chosen.name} has no row with the id {asked.id!r}.")
        return item_at(chosen.index, place, self.rule(asked))

    def neighbours(self, asked: RowQuery) -> list[Neighbour]:
        """Return the rows whose probabilities are most like those of a row."""
        chosen = self.file(asked.file, asked.raw)
        place = chosen.index.place(asked.id)
        if place is None:
            return []
        return neighbours(chosen.sample, chosen.index.row(place)[0], asked.id)

    def beside(self, asked: RowQuery) -> Beside:
        """Return what comes before and after a row in the list that it was opened from."""
        path, _, query = asked.within.partition("?")
        pairs = parse_qsl(query)
        back = f"{path}?{urlencode(pairs)}"
        if path == "/errors":
            view = parse_view(EntryQuery, query)
            ids = self.file(view.file, view.raw).index.ids(self.found(view).places)
            return _beside(list(dict.fromkeys(map(str, ids))), asked.id, back)
        if path == "/" and dict(pairs).get("q"):
            answer = self.file(asked.file, asked.raw).search(dict(pairs)["q"], SEARCHED)
            return _beside([str(id) for id in answer.ids], asked.id, back)
        return self._by_id(asked)

    def _by_id(self, asked: RowQuery) -> Beside:
        index = self.file(asked.file, asked.raw).index
        place = index.place(asked.id)
        if place is None:
            return Beside(None, None, 0, len(index), "")
        around = [each for each in (place - 1, place + 1) if 0 <= each < len(index)]
        ids = dict(zip(around, map(str, index.ids(around)), strict=True))
        return Beside(ids.get(place - 1), ids.get(place + 1), place + 1, len(index), "")

    def _find(self, asked: EntryQuery) -> EntryList:
        index = self.file(asked.file, asked.raw).index
        return find_entries(index, asked, self.rule(asked), self._compared(asked))

    def _compared(self, asked: EntryQuery) -> Other | None:
        """Return the file that a view compares with; None where it compares with none."""
        if asked.kind != "disagreement":
            return None
        against = asked.against
        if against is None:
            against = 1 if asked.file == 0 else 0
        if against == asked.file:
            raise InputError("a file cannot disagree with itself; ask for another with `against`.")
        return self._other(asked.file, asked.raw, against)

    def _match(self, file: int, raw: bool, against: int) -> Other:
        return Other.of(self.file(file, raw).index, self.file(against, False).index)


def _beside(ids: list[str], id: str, back: str) -> Beside:
    if id not in ids:
        return Beside(None, ids[0] if ids else None, 0, len(ids), back)
    place = ids.index(id)
    previous = ids[place - 1] if place else None
    following = ids[place + 1] if place + 1 < len(ids) else None
    return Beside(previous, following, place + 1, len(ids), back)
