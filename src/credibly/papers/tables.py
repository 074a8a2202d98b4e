"""Printed tables: the run for each row, and the printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from credibly.papers.protocol import Preset
from credibly.types import JsonObject

Method = str | JsonObject
"""The loss of one row, or its settings beside those of the preset; ``data`` holds options of the
data."""


@dataclass(frozen=True)
class Block:
    """The rows of a table for one data set and one network.

    Attributes:
        data: name of the data set's reader.
        preset: the protocol.
        printed: one line per method: its name, then one number per column, ``-`` if missing.
        settings: further settings, such as K.
    """

    data: str
    preset: str
    printed: str
    settings: JsonObject = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return a name that distinguishes this block from the others."""
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
        caption: its caption.
        columns: metrics, by their names in the metrics of a run.
        methods: the rows.
        blocks: data sets and networks.
        note: differences from the printed table.
    """

    caption: str
    columns: tuple[str, ...]
    methods: Mapping[str, Method]
    blocks: tuple[Block, ...]
    note: str = ""

    def blocks_for(self, source: str) -> list[Block]:
        """Return the blocks for the data set of a source, or the first block for other data."""
        kind = source.partition(":")[0]
        return [block for block in self.blocks if block.data == kind] or [self.blocks[0]]


@dataclass(frozen=True)
class RowRun:
    """A run for one row of a table: its folder and its settings.

    Attributes:
        method: name of the row.
        folder: of the run.
        settings: options of a recipe, as for ``cr.train.recipe``.
        data: options of ``cr.data.load``.
        seed: of the run.
    """

    method: str
    folder: Path
    settings: JsonObject
    data: JsonObject
    seed: int

    def metrics(self) -> JsonObject | None:
        """Return the metrics of the finished run, or None if it is not finished."""
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
    settings: JsonObject | None = None,
    data: JsonObject | None = None,
) -> list[RowRun]:
    """Return the runs of a block, method by method and seed by seed.

    Args:
        table: the table.
        block: one of its blocks.
        preset: the protocol that the block names.
        source: the data, as for ``cr.data.load``.
        out: folder of the runs.
        seeds: number of runs per method.
        settings: settings that override those of the preset.
        data: options of the data that override those of the preset.
    """
    runs = []
    for name, method in table.methods.items():
        row: JsonObject = {"loss": method} if isinstance(method, str) else dict(method)
        loss, of_data = preset.loss(row.pop("loss")), row.pop("data", {})
        values = {**preset.settings, **block.settings, **row, **(settings or {}), "loss": loss}
        options = {**preset.data(source), **of_data, **(data or {})}
        for seed in range(seeds):
            folder = out / _slug(block.name) / f"{_slug(name)}-seed{seed}"
            runs.append(RowRun(name, folder, values, options, seed))
    return runs


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "+.-" else "_" for letter in name)


def beside_printed(table: Table, block: Block, runs: Sequence[RowRun]) -> list[JsonObject]:
    """Return each method with its printed numbers and the mean of its finished runs."""
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
    """Train the missing runs of a block, and resume the interrupted ones."""
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
