"""The served files: which is asked for, which rule is in force, which labels of rows are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import cast

import numpy as np

from credibly.app.served.address import EntryQuery, FileQuery, Rule, rule_of
from credibly.app.served.entries import Entry, EntryList, Other, entries_at, find_entries
from credibly.app.served.files import ServedPredictions
from credibly.app.served.top_k import ServedTop
from credibly.checks import InputError

VIEWS = 32  # views remembered, each at most 160 kB
MOST_BYTES = 2 * 2**30  # of files in memory, as far as there are more than two
Served = ServedPredictions | ServedTop


class Workbench:
    """Views of the served files, worked out when asked for; the latest are remembered."""

    def __init__(self, files: Sequence[Served]) -> None:
        self.files = files
        remembered = lru_cache(maxsize=VIEWS)(self._find)  # a view is frozen, so it is a key
        self._found = cast(Callable[[EntryQuery], EntryList], remembered)
        self._other = lru_cache(maxsize=2)(self._match)
        self._used: dict[int, None] = {}
        self._lock = Lock()

    def any(self, number: int, raw: bool) -> Served:
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

    def file(self, number: int, raw: bool) -> ServedPredictions:
        """Return one of the files that hold a probability for every label and row."""
        chosen = self.any(number, raw)
        if isinstance(chosen, ServedTop):
            raise InputError(
                f"this needs a probability for every label and row; {chosen.name} holds the most "
                "probable labels of each row. Overview, search, labels and rows are there."
            )
        return chosen

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
        chosen = self.files[number]
        return 0 if chosen.scan.top else 5 * chosen.scan.num_rows * len(chosen.labels)

    def rule(self, asked: FileQuery) -> Rule:
        """Return the rule that an address asks for."""
        chosen, fitted = self.any(asked.file, asked.raw), None
        if asked.miss is None and asked.average_size is not None:
            dense = self.file(asked.file, asked.raw)
            fitted = dense.decision(round(asked.average_size, 2), dense.labels)
        elif asked.miss is None and asked.recall is not None:
            fitted = self.file(asked.file, asked.raw).recall(round(asked.recall, 3))
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
