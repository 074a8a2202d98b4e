"""``credibly papers``: the four papers, their protocols and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.cli.command import (
    Printed,
    given,
    input_error,
    option,
    with_reader_options,
    with_recipe_options,
)
from credibly.cli.terminal import print_json, print_table, print_text, progress, tell
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.papers.tables import RowRun, Table

PAPERS = {
    "spa": "spa",
    "quasibinary": "quasibinary",
    "two-way": "two_way",
    "average-k": "average_k",
}


@dataclass(frozen=True, kw_only=True)
class PaperOptions(Printed):
    """Show the papers, their training protocols and tables.

    With --data and --out, the table shows the test metrics of your runs beside the printed numbers.
    --run trains the rows of the table that have no run in OUT yet. After an interruption, run the
    same command again. Options of `credibly train` override those of the preset.

    Examples:
      credibly papers
      credibly papers spa --preset spa-coco
      credibly papers --checkpoint tresnet_m.pth --out tresnet_m.safetensors
      credibly papers spa --table 3 --data coco:data/coco --out tables/spa-3
      credibly papers average-k --table 1 --data x.npz --model linear --seeds 3 --out t --run

    Args:
        paper: one of spa, quasibinary, two-way, average-k
        table: number of a table, such as 3 or II
        preset: preset to show, beside the words of the paper
        data: digits, synthetic, a file, or KIND:PATH
        out: folder for the runs of the table; with --checkpoint, a file
        checkpoint: official checkpoint (.pth, .tar) to convert to the file OUT (.safetensors)
        seeds: runs per row
        run: train the rows that have no run yet
    """

    paper: str | None = option(None, positional=True)
    table: str | None = None
    preset: str | None = None
    data: str | None = None
    out: str | None = None
    checkpoint: str | None = None
    seeds: int = option(1, between=(1, 1000))
    run: bool = False


Options = with_reader_options(with_recipe_options(PaperOptions, leave_out=("loss",)))


def run(options: PaperOptions) -> None:
    from credibly import papers
    from credibly.checks import choice

    if options.paper is not None:
        choice("paper", options.paper, tuple(PAPERS))
    if options.checkpoint is not None:
        return _convert(options.checkpoint, options)
    if options.preset is not None:
        return _show_preset(options, options.preset)
    if options.table is not None:
        return _show_table(options, options.table)
    columns, rows = ["paper", "title", "tables", "presets"], []
    for name, module in PAPERS.items():
        if options.paper in (None, name):
            paper = getattr(papers, module)
            rows.append([name, paper.TITLE, ", ".join(paper.TABLES), ", ".join(paper.PRESETS)])
    if options.json:
        return print_json({"papers": [dict(zip(columns, row, strict=True)) for row in rows]})
    print_table("", columns, rows)
    print_text("Next: credibly papers PAPER --table NUMBER, or credibly papers --preset NAME.")
    return None


def _convert(checkpoint: str, options: PaperOptions) -> None:
    from credibly.papers.checkpoints import convert_checkpoint

    if options.out is None:
        raise input_error("--checkpoint needs --out, the .safetensors file to write.")
    tensors = len(convert_checkpoint(checkpoint, options.out))
    text = f"Wrote {tensors:,} tensors to {options.out}. Next: --weights {options.out}"
    tell(options, {"out": options.out, "tensors": tensors}, text)


def _show_preset(options: PaperOptions, name: str) -> None:
    from credibly import papers

    found = papers.preset(name)
    rows = [(each.words, ", ".join(each.values())) for each in found.statements]
    for kind, own in found.of_data.items():
        rows.append((f"of {kind}", ", ".join(f"{key} = {own[key]}" for key in own)))
    document = {"statements": [{"words": words, "settings": values} for words, values in rows]}
    tell(options, document, lambda: print_table(name, ["the paper", "settings"], rows))


def _show_table(options: PaperOptions, number: str) -> None:
    from credibly import papers
    from credibly.checks import choice
    from credibly.papers.tables import beside_printed, row_runs, train_rows

    data, out, paper = options.data, options.out, options.paper
    if paper is None:
        raise input_error("--table needs the name of a paper; see `credibly papers`.")
    if options.run and (data is None or out is None):
        raise input_error("--run needs --data and --out.")
    tables: dict[str, Table] = getattr(papers, PAPERS[paper]).TABLES
    table = tables[choice("table", number, tuple(tables))]
    shown: list[JsonObject] = []
    for block in table.blocks if data is None else table.blocks_for(data):
        runs: list[RowRun] = []
        if data is not None and out is not None:
            preset = papers.preset(block.preset)
            runs = row_runs(
                *(table, block, preset, data, Path(out)),
                seeds=options.seeds,
                settings=given(options, "recipe"),
                data=given(options, "reader"),
            )
        if options.run:
            left = sum(each.metrics() is None for each in runs)
            with progress(f"training {block.name}", total=left, quiet=options.silent) as advance:
                train_rows(data or "", block, runs, advance)
        shown += beside_printed(table, block, runs)
    if options.json:
        return print_json({"rows": shown})
    title = f"{paper}, table {number}: {table.caption}; % of ours (printed)"
    rows = [[row["method"], row["block"], row["runs"], *row["cells"]] for row in shown]
    print_table(title, ["", "data", "runs", *table.columns], rows)
    if table.note:
        print_text(table.note)
    if data is not None and table.blocks_for(data)[0].data != data.partition(":")[0]:
        print_text(f"{data} is not the paper's data set: compare the order, not the numbers.")
    if remaining := sum(not row["runs"] for row in shown):
        print_text(
            f"{remaining} of {len(shown)} rows have no run. Add --data, --out and --run to train "
            "them."
        )
    return None
