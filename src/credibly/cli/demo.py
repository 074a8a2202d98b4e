"""``credibly demo``: train, calibrate, search and report on embedded data in a minute or two."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.cli.command import Printed, option
from credibly.cli.terminal import print_json, print_text, progress

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.train import Network

LOSSES = ("asl", "bce", "bce+twl")
QUERY = "+3 +7 -1"
CLUTTER = 0.1
"""Less than the default of the data set, so that a minute of training is enough."""
COLUMNS = ("mAP@y", "ACE, sigmoid", "ACE, link", "ACE", "NLL", "set coverage", "retrieval@3")

OPENING = """\
A small network is trained on {all:,} images with zero to four handwritten digits each,
some of them blurred beyond recognition. It returns the probability that each digit is
in the image. Three losses are compared. Each trains on {train:,} images and is calibrated
on {calibration} others. The table shows {test:,} test images. {epochs} epochs are few: with longer
training the losses come closer together.
"""

EXPLANATION = """\
How to read it:
  mAP@y         how well the images of each digit are ranked; higher is better.
  ACE, sigmoid  mean gap between probability and frequency if you take the sigmoid of
                the scores, as most code does. It is wrong for asl: the gap is {sigmoid}.
  ACE, link     the same gap with the link of the loss instead of the sigmoid.
  ACE           the same gap after calibration, as in the predictions file.
  NLL           log loss; lower is better.
  set coverage  share of the present digits that are in sets of {size:g} labels on average.
  retrieval@3   how well queries with three conditions, such as {query}, are ranked.
"""

NEXT = """\
Next:
  {report}  the same in charts; open it in a browser
  credibly serve {predictions} --images {images}
      search, thresholds and label budgets in the browser
  credibly search {predictions} '{query}' --top 5
  credibly train YOUR.npz --out runs/mine  the same on your data (docs/guide/data.md)
"""


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Train, calibrate, search and report on embedded data.

    The demo trains a small network with the losses asl, bce and bce+twl on images of scanned
    digits. It explains the results, searches the predictions and writes a report. Nothing is
    downloaded. You can stop it and run it again, because finished runs in OUT are kept.

    Example:
      credibly demo

    Args:
        out: folder to write to
        rows: number of images
        epochs: passes over the training images
        seed: seed of the images
        jobs: number of losses that train at the same time
    """

    out: str = "demo"
    rows: int = option(4000, between=(100, 1_000_000))
    epochs: int = option(16, between=(1, 10_000))
    seed: int = option(0, between=(0, 2**63 - 1))
    jobs: int = option(3, between=(1, 256))


def run(options: Options) -> None:
    from credibly import data
    from credibly.app import report
    from credibly.cli.compare import show
    from credibly.retrieve import search
    from credibly.workflows import compare

    start = time.monotonic()
    scenery = {"n": options.rows, "clutter": CLUTTER}
    scenes = data.load("digits", seed=options.seed, **scenery)
    if not options.json:
        sizes = {name: len(scenes.part(name)) for name in ("all", "train", "calibration", "test")}
        print_text(OPENING.format(epochs=options.epochs, **sizes))
    with progress("training", total=len(LOSSES), quiet=options.silent) as advance:
        results = compare(
            "digits",
            options.out,
            LOSSES,
            seeds=1,
            recipe=recipe(options),
            jobs=options.jobs,
            threads=1,  # the same metrics for any number of cores
            data_options=scenery,
            done=lambda name: advance(1),
        )
    runs = Path(options.out) / "runs"
    files = {loss: runs / f"{loss}-seed0" / "predictions.parquet" for loss in LOSSES}
    best = files[min(LOSSES, key=lambda loss: results.losses[loss]["NLL"]["mean"])]
    answer = search(best, QUERY, top=5)
    page = Path(options.out) / "report.html"
    report.write(list(files.values()), page, names=list(files), resamples=100)
    images = write_images(scenes.part("test"), Path(options.out) / "images")
    if options.json:
        found = {"search": answer.to_dict(), "report": str(page)}
        return print_json({**results.to_dict(), **found})
    show(results, COLUMNS)
    wrong = results.losses["asl"]["ACE, sigmoid"]["mean"]
    words = {"sigmoid": f"{wrong:.2f}", "size": results.average_size, "query": QUERY}
    print_text("\n" + EXPLANATION.format(**words))
    print_text(
        f"Search for a 3 and a 7 but no 1, {QUERY}, in the run with the lowest NLL: "
        f"{answer.expected_hits:.0f} hits expected, {answer.known_hits} real. First:"
    )
    for hit in answer.hits:
        print_text(f"  {hit.id}  {hit.probability:.0%}  {'right' if hit.truth else 'wrong'}")
    print_text("")
    print_text(
        NEXT.format(report=page, predictions=best, images=images, query=QUERY)
        + f"\nThe demo took {time.monotonic() - start:.0f} seconds."
    )
    return None


def recipe(options: Options) -> Network:
    """Return the recipe of the demo's networks."""
    from credibly.train import Network

    return Network(
        model="cnn",
        hidden=16,
        epochs=options.epochs,
        batch_size=32,
        learning_rate=5e-3,
        schedule="onecycle",
        warmup=0.3,
        split_seed=options.seed,
    )


def write_images(scenes: Data, folder: Path) -> Path:
    """Write the test images under their ids, four times their size; return the folder."""
    from PIL import Image

    from credibly.files import atomic_path

    for row, name in enumerate(scenes.ids):
        target = folder / f"{name}.png"
        if not target.exists():
            picture = Image.fromarray(scenes.image(row).squeeze())
            larger = picture.resize((4 * picture.width, 4 * picture.height))
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(target) as beside:
                larger.save(beside, format="png")
    return folder
