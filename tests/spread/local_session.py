"""A stand-in for a Spark session: its tasks run here, one partition after the other.

The executor that sends work to Spark is used as it is. What tasks return goes through its stored
form, so that the tests show, without Java, that sums of parts are the sums of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class LocalSession:
    """The part of a Spark session that the executor uses."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Frame:
        assert partitions == len(range(start, end, step))
        return Frame([[{"id": number}] for number in range(start, end, step)])


class Row(tuple):
    """A tuple whose cells have names, as Spark's: methods of tuples hide cells of their name."""

    __slots__ = ()

    @classmethod
    def of(cls, cells: dict[str, Any]) -> Row:
        return cls([*cells.items()])

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: Any) -> Any:
        return dict(iter(self))[name]


class Frame:
    """Rows in partitions."""

    def __init__(self, partitions: list[list[dict[str, Any]]]) -> None:
        self.partitions = partitions

    def mapInArrow(self, task: Task, schema: str) -> Frame:
        names = [each.split()[0] for each in schema.split(", ")]
        mapped = []
        for rows in self.partitions:
            records = iter([pa.RecordBatch.from_pylist(rows)] if rows else [])
            mapped.append([row for record in task(records) for row in record.to_pylist()])
        assert all(list(row) == names for rows in mapped for row in rows)
        return Frame(mapped)

    def repartition(self, count: int) -> Frame:
        """Deal rows out, as in Spark in no certain order."""
        rows = [row for rows in self.partitions for row in rows][::-1]
        return Frame([rows[place::count] for place in range(count)])

    def collect(self) -> list[Row]:
        return [Row.of(row) for rows in self.partitions[::-1] for row in rows]
