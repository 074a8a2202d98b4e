"""Printed tables: which run gives each row, and what the paper prints for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from credibly.checks import InputError, nearest
from credibly.papers.protocol import Preset

Method = Mapping[str, Any]
"""Settings of one row beside those of the preset; ``data`` holds options of the data."""


@dataclass(frozen=True)
class Block:
    """The rows of a table for one data set and one network.

    Attributes:
        data: name of the data set's reader.
        preset: the protocol.
        printed: one line per method: its name, then a number for each column, ``-`` for none.
        settings: further settings, such as K.
    """

    data: str
    preset: str
    printed: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return what tells this block from the others."""
        further = [f"{name} {value:g}" for name, value in self.settings.items()]
        return ", ".join([self.data, self.preset, *further])

    def numbers(self, columns: Sequence[str]) -> dict[str, list[float | None]]:
        """Return the printed numbers of each method, in the order of the columns."""
        lines = [line.rsplit(maxsplit=len(columns)) for line in self.printed.strip().splitlines()]
        return {
            name.strip(): [None if cell in "-×" else float(cell) for cell in cells]
            for name, *cells in lines
        }


@dataclass(frozen=True)
class Table:
    """A printed table; all its numbers are percentages.

    Attributes:
        caption: what it shows.
        columns: metrics, by their names in the metrics of a run.
        methods: the rows.
        blocks: data sets and networks.
        note: what differs from the print.
    """

    caption: str
    columns: tuple[str, ...]
    methods: Mapping[str, Method]
    blocks: tuple[Block, ...]
    note: str = ""

    def blocks_for(self, source: str) -> list[Block]:
        """Return the blocks of a source's data set, or the first for other data."""
        kind = source.partition(":")[0]
        return [block for block in self.blocks if block.data == kind] or [self.blocks[0]]


@dataclass(frozen=True)
class RowRun:
    """A run that gives one row of a table: where it is, and how to train it.

    Attributes:
        method: name of the row.
        folder: of the run.
        settings: options of a recipe, as ``cr.train.recipe`` takes them.
        data: options of ``cr.data.load``.
        seed: of the run.
    """

    method: str
    folder: Path
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    seed: int

    def metrics(self) -> dict[str, Any] | None:
        """Return the metrics of the finished run, None where it remains to run."""
        from credibly.untrusted.documents import read_json_object

        path = self.folder / "metrics.json"
        if not path.exists():
            return None
        return read_json_object(path, "Remove the run to train it again.")


def row_runs(
    table: Table,
    block: Block,
    preset: Preset,
    source: str,
    out: Path,
    *,
    seeds: int = 1,
    settings: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> list[RowRun]:
    """Return the runs of a block, method by method and seed by seed.

    Args:
        table: the table.
        block: one of its blocks.
        preset: the protocol that the block names.
        source: the data, as for ``cr.data.load``.
        out: folder of the runs.
        seeds: runs per method.
        settings: settings that replace the preset's.
        data: options of the data that replace the preset's.
    """
    runs = []
    for name, method in table.methods.items():
        own = {key: value for key, value in method.items() if key not in ("loss", "data")}
        plain = {**preset.settings, **block.settings, **own, **(settings or {})}
        options = {**preset.data(source), **method.get("data", {}), **(data or {})}
        for seed in range(seeds):
            values = {**plain, "loss": preset.loss(method["loss"])}
            folder = out / _slug(block.name) / f"{_slug(name)}-seed{seed}"
            runs.append(RowRun(name, folder, values, options, seed))
    return runs


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "+.-" else "_" for letter in name)


def find(tables: Mapping[str, Table], number: str, paper: str) -> Table:
    """Return a table of a paper by its number."""
    if number not in tables:
        raise InputError(
            f"`table` must be one of {', '.join(tables)} of {paper}; got {number!r}. "
            f"{nearest(number, tables)}"
        )
    return tables[number]


def beside_printed(table: Table, block: Block, runs: Sequence[RowRun]) -> list[dict[str, Any]]:
    """Return each method with its printed numbers, and the mean of its finished runs."""
    printed = block.numbers(table.columns)
    rows = []
    for method, numbers in printed.items():
        done = [found for each in runs if each.method == method and (found := each.metrics())]
        ours = [
            [100 * metrics[column] for metrics in done if metrics.get(column) is not None]
            for column in table.columns
        ]
        means = [sum(values) / len(values) if values else None for values in ours]
        cells = [
            f"{'–' if mean is None else f'{mean:.1f}'} ({'×' if number is None else f'{number:g}'})"
            for mean, number in zip(means, numbers, strict=True)
        ]
        rows.append(
            {
                "method": method,
                "block": block.name,
                "runs": len(done),
                "printed": dict(zip(table.columns, numbers, strict=True)),
                "ours": dict(zip(table.columns, means, strict=True)),
                "cells": cells,
            }
        )
    return rows


def train_rows(
    source: str, block: Block, runs: Sequence[RowRun], advance: Callable[[float], None]
) -> None:
    """Train the runs of a block that are not there; each is resumed where it was interrupted."""
    from credibly import data, names, train
    from credibly.checks import located

    rows, read = None, None
    for each in runs:
        if each.metrics() is not None:
            continue
        recipe = train.recipe(**each.settings)
        with located(f"preset {block.preset}"):
            names.check_library(recipe.model)
        if rows is None or read != each.data:
            rows = data.load(source, seed=recipe.split_seed, **each.data)
            read = each.data
        train.fit(rows, recipe, folder=each.folder, seed=each.seed, resume=True)
        advance(1)
