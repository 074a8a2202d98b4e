"""``credibly train DATA``: from data to calibrated predictions and a run that can be resumed."""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.cli.command import option, with_fields
from credibly.cli.reader_options import reader_options, with_reader_options
from credibly.train import Settings
from credibly.train.configuration import how_trained, of_networks

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, kw_only=True)
class Own:
    """Train a classifier; calibrate it on held-out rows; predict and measure the test rows.

    Settings come from their defaults, then --preset, then --config, then flags. OUT becomes a run
    folder: config.toml, model.safetensors, state/, log.jsonl, calibration.json,
    predictions.parquet (test rows) and metrics.json. After an interruption at any moment, --resume
    continues to the same result.
    On several processes: torchrun --nproc-per-node 2 -m credibly train …

    Examples:
      credibly train digits --loss spa+lpr --out runs/digits
      credibly train voc2012.npz --model mlp --epochs 60 --out runs/voc
      credibly train coco:data/coco --preset spa-coco --out runs/coco
      credibly train faces.csv --labels smiling,hat --coding signed --out runs/faces
    """

    data: str = option(help="digits, synthetic, a file, or KIND:PATH", positional=True)
    out: str = option(help="folder of the run")
    preset: str | None = option(
        None, help="recipe of a paper, e.g. spa-coco; see docs/papers/presets.md"
    )
    resume: bool = option(False, help="continue the run in OUT, or start it")
    skip_bad_images: bool = option(False, help="leave out images that do not decode")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="no progress")


def with_settings(own: type[object], leave_out: Sequence[str] = ()) -> Any:
    """The options of a command and a flag for every setting, None where it is not given."""
    hints = typing.get_type_hints(Settings)
    fields = []
    for field in dataclasses.fields(Settings):
        if field.name in leave_out:
            continue
        text = str(field.metadata["help"])
        if field.default not in (None, False, ()) and "default" not in text:
            text += f" (default: {field.default})"
        metadata = {"help": text, "choices": field.metadata["choices"]}
        flag = dataclasses.field(default=None, metadata=metadata)
        fields.append((field.name, hints[field.name] | None, flag))
    return with_fields(own, fields)


Options: Any = with_reader_options(with_settings(Own))


def given(options: DataclassInstance) -> dict[str, Any]:
    """Return the settings that a flag or a file names."""
    names = {field.name for field in dataclasses.fields(Settings)}
    own = [field.name for field in dataclasses.fields(options) if field.name in names]
    values = {name: getattr(options, name) for name in own}
    return {name: value for name, value in values.items() if value is not None}


def settings_of(options: Own) -> Settings:
    """Defaults, then the preset or the run to resume, then what was given."""
    from credibly import papers

    protocol = papers.preset(options.preset) if options.preset else papers.Preset()
    base = dict(protocol.settings)
    config = Path(options.out) / "config.toml"
    if options.resume and config.exists():
        from credibly.train import read_config

        stored = read_config(config.parent)["settings"]
        _refuse_stored_code(stored, options)
        base = {**stored, **base}
    values = {**base, **given(options)}
    if values.get("model") == "linear" and "solver" not in values and any(map(of_networks, values)):
        values["solver"] = "steps"
    settings = Settings.from_mapping(values, "settings")
    settings = replace(settings, loss=protocol.loss(settings.loss))
    check_names(settings)
    return settings


def data_options(options: Any, resumed: Path | None = None) -> dict[str, Any]:
    """Return the options of the run to resume, then the preset's, then those that were given."""
    from credibly import papers

    stored = {}
    if resumed is not None and (resumed / "config.toml").exists():
        from credibly.train import read_config

        stored = read_config(resumed)["data"].get("reader", {})
    printed = papers.preset(options.preset).data(options.data) if options.preset else {}
    return {**stored, **printed, **reader_options(options)}


def check_names(settings: Settings) -> None:
    """Refuse a misspelt loss or model before anything heavy is imported."""
    from credibly import names

    if settings.loss != "auto":
        names.check_loss(settings.loss)
    if settings.model != "auto":
        names.check_model(settings.model)


def check_library(settings: Settings, preset: str | None) -> None:
    """Refuse a network whose library is not installed before the data are read."""
    from credibly import names
    from credibly.checks import InputError

    try:
        names.check_library(settings.model)
    except InputError as error:
        raise InputError(f"preset {preset}: {error}" if preset else str(error)) from None


def _refuse_stored_code(stored: Mapping[str, object], options: Own) -> None:
    """Import code for a network only where the user names it, not because a folder does."""
    from credibly.checks import InputError

    model = str(stored.get("model", ""))
    if model.startswith("python:") and given(options).get("model") != model:
        raise InputError(
            f"{options.out} names code to import ({model}). If you trust it, name it too: "
            f"--model {model}."
        )


def run(options: Own) -> int:
    from credibly.checks import out_can_be_written

    settings = settings_of(options)
    check_library(settings, options.preset)
    out_can_be_written(options.out, folder=True)
    from credibly import data, train
    from credibly.cli.tables import print_json, print_table, print_text

    rows = data.load(
        options.data,
        seed=settings.split_seed,
        skip_bad_images=options.skip_bad_images,
        **data_options(options, Path(options.out) if options.resume else None),
    )
    if rows.preparation is not None and not (options.json or options.quiet) and is_main():
        print_text(f"{rows.source}: {rows.preparation}")
    settings = train.resolve_settings(settings, rows)
    with watching(settings, options.quiet or not is_main()) as callback:
        done = train.fit(rows, options.out, settings, resume=options.resume, callback=callback)
    if not is_main():
        return 0
    table = done.candidates.get("candidates", [])
    if options.json:
        compared = {"candidates": table} if table else {}
        print_json({"run": options.out, "metrics": done.metrics, **compared})
        return 0
    title = f"{done.settings.loss} · {how_trained(done.settings)} · test rows"
    print_table(title, ["", "value"], list(done.metrics.items()))
    if len(table) > 1:
        print_table("models compared on rows they did not see", *_compared(table))
    print_text(f"{rows}")
    if settings.calibrate == "none" and not len(rows.part("calibration")):
        print_text("No rows were held out: the probabilities are not calibrated.")
    for row in rows.skipped[:10]:
        print_text(f"left out, does not decode: {row}")
    print_text(
        f"Wrote {options.out}. Next: credibly evaluate {options.out}/predictions.parquet, "
        f"credibly report {options.out}/predictions.parquet --out report.html"
    )
    return 0


def _compared(table: list[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Return the columns and rows of what was compared; a reason where a model was left out."""
    figures = {"NLL": "nll", "mAP": "map", "ACE": "ace", "weight": "weight"}
    rows = [[row["model"], *(row.get(key) for key in figures.values())] for row in table]
    if any("left_out" in row for row in table):
        rows = [[*cells, row.get("left_out", "")] for cells, row in zip(rows, table, strict=True)]
        return ["", *figures, "left out, since"], rows
    return ["", *figures], rows


def is_main() -> bool:
    """Whether this is the process that speaks."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def watching(settings: Settings, quiet: bool) -> Iterator[Any]:
    """Show a progress bar with rows per second, time left and the last epoch's figures.

    Nothing is shown where standard error is not a terminal.
    """
    from credibly.train import Callback

    if quiet or not sys.stderr.isatty():
        yield Callback()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    name, epochs = settings.loss, settings.epochs
    rows = (settings.batch_size or 0) * settings.accumulate

    class Bar(Callback):
        def on_linear_probe(self, figures: dict[str, Any]) -> None:
            shown = ", ".join(f"{k} {figures[k]:.3f}" for k in ("nll", "map", "ace"))
            bar.update(task, description=f"{name}: last layer, l2 {figures['l2']:g} · {shown}")

        def on_update(self, done: int, total: int) -> None:
            speed = (bar.tasks[task].speed or 0) * rows
            shown = f"{speed:,.0f} rows/s" if speed else ""
            bar.update(task, completed=done, total=total, speed=shown)

        def on_epoch(self, figures: dict[str, Any]) -> None:
            keys = [key for key in ("loss", "l2", "nll", "map", "ace") if key in figures]
            shown = ", ".join(f"{key} {figures[key]:.3g}" for key in keys)
            bar.update(task, description=f"{name}: epoch {figures['epoch']}/{epochs} · {shown}")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name}: epoch 0/{epochs}", total=None, speed="")
        yield Bar()
