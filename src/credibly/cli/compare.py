"""``credibly compare DATA``: several losses × seeds on the same rows, one table with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.cli.command import Printed, given, option, with_reader_options, with_recipe_options
from credibly.cli.terminal import cell, print_json, print_table, print_text, progress
from credibly.cli.train import data_options

if TYPE_CHECKING:
    from credibly.workflows.comparison import Comparison

COLUMNS = ("top-1 error", "mAP@y", "mAP@x", "ACE", "MCE", "NLL", "ACE, sigmoid", "set coverage")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Printed):
    """Train with several losses and seeds, and compare them.

    Every loss is trained and tested on the same rows. OUT holds results.json and a folder runs/
    with one run folder per loss and seed. The options of `credibly train` apply to every run. After
    an interruption, run the same command again; finished runs are kept.

    Example:
      credibly compare digits --losses bce,asl,spa,spa+lpr --seeds 3 --jobs 2 --out compared

    Args:
        data: digits, synthetic, a file, or KIND:PATH
        out: folder of the comparison
        losses: names of losses, separated by commas
        seeds: number of runs per loss; with 1, intervals are computed over test rows
        jobs: number of runs that train at the same time
        conditions: maximum number of conditions per query in the retrieval metrics
        preset: recipe of a paper; see docs/papers/presets.md
    """

    data: str = option(positional=True)
    out: str
    losses: tuple[str, ...] = ("bce", "asl", "spa", "spa+lpr")
    seeds: int = option(3, between=(1, 1000))
    jobs: int = option(1, between=(1, 256))
    conditions: int = option(3, between=(1, 10))
    preset: str | None = None


Options = with_reader_options(with_recipe_options(CompareOptions, leave_out=("loss",)))


def run(options: CompareOptions) -> None:
    from credibly.checks import out_can_be_written
    from credibly.names import check_library, check_loss
    from credibly.papers import Preset, preset
    from credibly.train import recipe

    protocol = preset(options.preset) if options.preset else Preset()
    base = {name: value for name, value in protocol.settings.items() if name != "loss"}
    how = recipe(**{**base, **given(options, "recipe")})
    losses = [protocol.loss(name) for name in options.losses]
    for name in losses:
        check_loss(name)
    check_library(how.model)
    out_can_be_written(options.out, folder=True)
    from credibly.workflows import compare

    count = len(set(losses)) * options.seeds
    with progress("training", total=count, quiet=options.quiet) as advance:
        results = compare(
            options.data,
            options.out,
            losses,
            seeds=options.seeds,
            recipe=how,
            jobs=options.jobs,
            conditions=options.conditions,
            data_options=data_options(options),
            done=lambda name: advance(1),
        )
    if options.json:
        print_json(results.to_dict())
        return
    show(results)
    print_text(f"Wrote {options.out}/results.json; predictions are in {options.out}/runs/.")


def show(results: Comparison, columns: Sequence[str] = ()) -> None:
    """Print one row per loss, each number with half the width of its interval."""
    from credibly.notebook import counted

    found = {name for each in results.losses.values() for name in each}
    wanted = columns or [*COLUMNS, *sorted(name for name in found if "retrieval@" in name)]
    shown = [name for name in wanted if name in found]
    rows = [
        [loss, *(_figure(figures.get(name)) for name in shown)]
        for loss, figures in results.losses.items()
    ]
    where = f"{Path(results.data).name}: {results.test_rows:,} test rows"
    print_table(f"{where}, {counted(results.seeds, 'seed')}", ["loss", *shown], rows)
    print_text(
        f"± is half the {results.interval}. Higher is better "
        f"for mAP, retrieval and set coverage ({results.average_size:g} labels per row), lower "
        "for the rest."
    )


def _figure(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return cell(None)
    half = f" ±{(figure['high'] - figure['low']) / 2:.4f}" if "low" in figure else ""
    return cell(figure["mean"]) + half
