"""``credibly train DATA``: from data to calibrated predictions and a run that can be resumed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly import names
from credibly.cli.command import (
    Printed,
    given,
    input_error,
    option,
    with_reader_options,
    with_recipe_options,
)
from credibly.cli.terminal import (
    Advance,
    complain,
    print_json,
    print_table,
    print_text,
    progress,
)
from credibly.train.callbacks import Callback
from credibly.train.recipes import Recipe, changed, from_table
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.train import Run


COMPARED = {
    "": "model",
    "NLL": "nll",
    "mAP": "map",
    "ACE": "ace",
    "weight": "weight",
    "estimate s": "seconds",
    "spent s": "spent",
    "left out because": "left_out",
}
"""Columns of the compared models, by header."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Printed):
    """Train a classifier, calibrate it and measure it.

    The rows are split into training, held-out and test rows. The model is calibrated on the
    held-out rows and measured on the test rows. OUT becomes a run folder: the model, its
    configuration, the predictions of the test rows and their metrics.

    --model chooses the recipe, and each recipe has its own options (see the groups below). Flags
    override --config, which overrides --preset, which overrides the defaults. After an
    interruption, --resume continues to the same result. To train with several processes:
    torchrun --nproc-per-node 2 -m credibly train …

    Examples:
      credibly train digits --out runs/digits
      credibly train voc2012.npz --model mlp --epochs 60 --out runs/voc
      credibly train coco:data/coco --preset spa-coco --out runs/coco
      credibly train faces.csv --labels smiling,hat --coding signed --out runs/faces

    Args:
        data: digits, synthetic, a file, or KIND:PATH
        out: folder of the run
        preset: recipe of a paper, e.g. spa-coco; see docs/papers/presets.md
        resume: continue the run in OUT if there is one
        overwrite: replace the run in OUT
        seed: seed of order, dropout, augmentation and initial weights (default: 0)
        skip_bad_images: skip images that cannot be decoded
    """

    data: str = option(positional=True)
    out: str
    preset: str | None = None
    resume: bool = False
    overwrite: bool = False
    seed: int | None = option(None, between=(0, 2**63 - 1))
    skip_bad_images: bool = False


Options = with_reader_options(with_recipe_options(TrainOptions))


def _recipe_of(options: TrainOptions, stored: JsonObject) -> tuple[Recipe, int]:
    """Return recipe and seed, from the preset or the run to resume, and the given options."""
    from credibly import papers, train

    protocol = papers.preset(options.preset) if options.preset else papers.Preset()
    values = {**protocol.settings, **given(options, "recipe")}
    if "loss" in values:
        values["loss"] = protocol.loss(values["loss"])
        if values["loss"] != "auto":
            names.check_loss(values["loss"])
    if not stored:
        return train.recipe(**values), options.seed or 0
    model = str(stored["settings"].get("model", ""))
    if model.startswith("python:") and values.get("model") != model:  # the user must name the code
        raise input_error(
            f"{options.out} imports Python code ({model}). If you trust it, add --model {model}."
        )
    recipe, seed = from_table(stored["settings"], f"{options.out}/config.toml")
    return changed(recipe, values), seed if options.seed is None else options.seed


def data_options(options: Any, stored: JsonObject | None = None) -> JsonObject:
    """Return the options of the run to resume, overridden by the preset and the given options."""
    from credibly import papers

    before = stored["data"].get("reader", {}) if stored else {}
    printed = papers.preset(options.preset).data(options.data) if options.preset else {}
    return {**before, **printed, **given(options, "reader")}


WORTH_SAYING = 10.0
"""Seconds from which on an estimate is shown."""


class _TrainingBar(Callback):
    """Show what is being trained, and the latest metrics."""

    def __init__(self, advance: Advance) -> None:
        self._advance, self._share, self._text = advance, 0.0, ""
        self._before, self._after, self._updated = 0.0, 0.0, False
        self._begun, self.estimate = time.monotonic(), 0.0

    def _show(self, text: str, share: float = 0.0) -> None:
        self._advance(max(share - self._share, 0.0), text)
        self._share = max(share, self._share)

    def on_estimate(self, figures: dict[str, float]) -> None:
        from credibly.notebook import counted

        self._before, self._after = figures["before"], figures["after"]
        needed, free = (f"{figures[name] / 1e9:.1f} GB" for name in ("bytes", "free"))
        minutes, epochs = figures["seconds"] / 60, counted(round(figures["epochs"]), "epoch")
        if figures["seconds"] > WORTH_SAYING:
            complain(f"Estimate: {minutes:.1f} minutes for {epochs}, {needed} of memory.")
            self._begun, self.estimate = time.monotonic(), minutes
        if figures["bytes"] > figures["free"]:
            complain(
                f"Training needs about {needed} of memory, and {free} are free. Lower --batch-size "
                "(--accumulate keeps the size of a step) or --image-size."
            )

    def on_linear_probe(self, figures: JsonObject) -> None:
        self._show(f" · last layer · l2 {figures['l2']:g} · nll {figures['nll']:.4f}")

    def on_candidate(self, figures: JsonObject) -> None:
        spent, left = figures["spent"], figures["left"]
        of = f"{figures['model']}, model {figures['number']} of {figures['total']}"
        text = f" · {of} · {spent:.0f} s spent, about {left:.0f} s left"
        self._show(text, spent / max(spent + left, 1e-9))

    def on_score(self, done: int, total: int) -> None:
        first, share = (1 - self._after, self._after) if self._updated else (0.0, self._before)
        self._show(self._text, first + share * done / total)

    def on_update(self, done: int, total: int) -> None:
        self._updated = True
        self._show(self._text, self._before + (1 - self._before - self._after) * done / total)

    def spent(self) -> str:
        """Return the time since the estimate beside it, or nothing if there was none."""
        if not self.estimate:
            return ""
        minutes = (time.monotonic() - self._begun) / 60
        return f"Time: {minutes:.1f} minutes; the estimate was {self.estimate:.1f} minutes."

    def on_epoch(self, figures: JsonObject) -> None:
        keys = [key for key in ("loss", "l2", "nll", "map", "ace") if key in figures]
        shown = ", ".join(f"{key} {figures[key]:.3g}" for key in keys)
        self._text = f" · {'fit' if 'l2' in figures else 'epoch'} {figures['epoch']} · {shown}"


def run(options: TrainOptions) -> None:
    from credibly.checks import out_can_be_written

    stored = {}
    if options.resume and Path(options.out, "config.toml").exists():
        from credibly.train.run_folder import read_config

        stored = read_config(Path(options.out))
    recipe, seed = _recipe_of(options, stored)
    names.check_library(recipe.model)
    out_can_be_written(options.out, folder=True)
    from credibly import data, train

    rows = data.load(
        options.data,
        seed=recipe.split_seed,
        skip_bad_images=options.skip_bad_images,
        **data_options(options, stored),
    )
    main = os.environ.get("RANK", "0") == "0"  # one of several processes prints
    shown = main and not options.silent
    if shown and rows.preparation is not None:
        print_text(f"{rows.source}: {rows.preparation}")
    recipe = train.resolve(recipe, rows)
    with progress(f"{recipe.loss}, {recipe.in_words()}", total=1, quiet=not shown) as advance:
        heard = _TrainingBar(advance)
        done = train.fit(
            rows,
            recipe,
            folder=options.out,
            seed=seed,
            resume=options.resume,
            overwrite=options.overwrite,
            callback=heard if shown else None,
        )
    if main:
        _show(options, done, rows, heard.spent())


def _show(options: TrainOptions, done: Run, rows: Data, spent: str) -> None:
    compared = done.candidates.get("candidates", [])
    if options.json:
        candidates = {"candidates": compared} if compared else {}
        return print_json({"run": options.out, "metrics": done.metrics, **candidates})
    title = f"{done.recipe.loss} · {done.recipe.in_words()} · test rows"
    print_table(title, ["", "value"], list(done.metrics.items()))
    if len(compared) > 1:
        compared = [{**each, "spent": done.spent.get(each["model"])} for each in compared]
        cells = [[each.get(key) for key in COMPARED.values()] for each in compared]
        title = "models, compared on rows that they were not trained on"
        print_table(title, list(COMPARED), cells)
    print_text(f"{rows}. {spent}".rstrip())
    if done.recipe.calibrate == "none" and not len(rows.part("calibration")):
        print_text("No rows were held out, so the probabilities are not calibrated.")
    for row in rows.skipped[:10]:
        print_text(f"skipped, cannot be decoded: {row}")
    written = f"{options.out}/predictions.parquet"
    print_text(
        f"Wrote {options.out}. Next: credibly evaluate {written}, credibly report {written} --out "
        "report.html"
    )
    return None
