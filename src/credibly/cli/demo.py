"""``credibly demo``: everything on the embedded data, in a minute or two, explained."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly.cli.command import option

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.workflows.comparison import Comparison

LOSSES = ("asl", "bce", "bce+twl")
QUERY = "+3 +7 -1"
COLUMNS = ("mAP@y", "ACE, sigmoid", "ACE, link", "ACE", "NLL", "set coverage", "retrieval@3")

OPENING = """\
Scenes of handwritten digits: {rows} pictures of zero to four digits each, some blurred beyond
recognition. A classifier says for each digit how probable it is that it is there. Three losses are
trained on {train} scenes, {jobs} at a time; {held_out} held-out scenes calibrate them; the table is
about {test} scenes that nothing was trained or tuned on. One learning rate serves all, and {epochs}
epochs are short: what is ahead here learns sooner; trained longer they come close to each other.
"""

EXPLANATION = """\
How to read it:
  mAP@y         how well each digit's scenes are ranked; higher is better.
  ACE, sigmoid  by how much probabilities differ from frequencies if one takes the sigmoid of the
                scores, as most code does. For asl that is the wrong map: {sigmoid} off on average.
  ACE, link     the same scores through the map that belongs to the loss.
  ACE           the same after calibration on held-out scenes: what the predictions file holds.
  NLL           log loss; lower is better, and only honest probabilities make it low.
  set coverage  share of the digits present that are returned when {size:g} labels per scene may be
                returned on average.
  retrieval@3   how well queries of three conditions, such as {query}, are ranked.
"""

NEXT = """\
Look next at
  {report}  the same in charts; open it in a browser
  credibly serve {predictions} --images {images}
      search, thresholds and label budgets in the browser
  credibly search {predictions} '{query}' --top 5
  credibly train YOUR.npz --out runs/mine  the same on your data (docs/guide/data.md)
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, calibrate, search and report on embedded data, explained; needs no download.

    Trains asl, bce and bce+twl on scenes of scanned digits, prints what came out and how to read
    it, searches the predictions and writes a report. OUT may be deleted at any time; run again, the
    demo takes over what is finished.

    Example:
      credibly demo
    """

    out: str = option("demo", help="folder to write to")
    rows: int = option(4000, help="number of scenes", between=(100, 1_000_000))
    epochs: int = option(16, help="passes over the training scenes", between=(1, 10_000))
    seed: int = option(0, help="seed of the scenes", between=(0, 2**63 - 1))
    jobs: int = option(3, help="losses that train at the same time", between=(1, 256))
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="no progress")


def run(options: Options) -> int:
    from credibly import data
    from credibly.app import report
    from credibly.cli.compare import show
    from credibly.cli.tables import print_json, print_text, progress
    from credibly.train import Network
    from credibly.workflows import compare

    start = time.monotonic()
    # Less clutter than the data set has by default: every loss gets somewhere in a minute.
    scenery = {"n": options.rows, "clutter": 0.1}
    scenes = data.load("digits", seed=options.seed, **scenery)
    if not options.json:
        sizes = {name: len(scenes.part(name)) for name in ("train", "calibration", "test")}
        opening = OPENING.format(
            rows=f"{len(scenes):,}",
            train=f"{sizes['train']:,}",
            held_out=sizes["calibration"],
            test=f"{sizes['test']:,}",
            jobs=options.jobs,
            epochs=options.epochs,
        )
        print_text(opening)
    recipe = Network(
        model="cnn",
        hidden=16,
        epochs=options.epochs,
        batch_size=32,
        learning_rate=5e-3,
        schedule="onecycle",
        warmup=0.3,
        split_seed=options.seed,
    )
    with progress("training", total=len(LOSSES), quiet=options.quiet or options.json) as advance:
        results = compare(
            "digits",
            options.out,
            LOSSES,
            seeds=1,
            recipe=recipe,
            jobs=options.jobs,
            threads=1,  # the same numbers on every machine, however many cores it has
            data_options=scenery,
            done=lambda name: advance(1),
        )
    runs = Path(options.out) / "runs"
    files = {loss: runs / f"{loss}-seed0" / "predictions.parquet" for loss in LOSSES}
    best = min(LOSSES, key=lambda loss: results.losses[loss]["NLL"]["mean"])
    found = searched(files[best])
    page = Path(options.out) / "report.html"
    report.write(list(files.values()), page, names=list(files), resamples=100)
    pictures = write_images(scenes.part("test"), Path(options.out) / "images")
    if options.json:
        print_json({**results.to_dict(), "search": found, "report": str(page)})
        return 0
    show(results, COLUMNS)
    print_text("\n" + explained(results))
    print_text(found_text(found))
    print_text(
        NEXT.format(report=page, predictions=files[best], images=pictures, query=QUERY)
        + f"\n{time.monotonic() - start:.0f} seconds in all."
    )
    return 0


def explained(results: Comparison) -> str:
    """How to read the table, with its own figures."""
    wrong = results.losses["asl"]["ACE, sigmoid"]["mean"]
    return EXPLANATION.format(sigmoid=f"{wrong:.2f}", size=results.average_size, query=QUERY)


def write_images(scenes: Data, folder: Path) -> Path:
    """The test scenes as pictures named by their ids, four times their size."""
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


def searched(path: Path) -> dict[str, Any]:
    """The demo's query on one predictions file."""
    from credibly.retrieve import search

    answer = search(path, QUERY, top=5)
    rows = [
        {"id": hit.id, "probability": hit.probability, "truth": hit.truth} for hit in answer.hits
    ]
    return {
        "query": QUERY,
        "hits": rows,
        "expected_hits": answer.expected_hits,
        "known_hits": answer.known_hits,
    }


def found_text(found: Mapping[str, Any]) -> str:
    """The search's answer in words."""
    lines = [
        f"Search the run with the lowest NLL for a 3 and a 7 but no 1, {found['query']}: "
        f"{found['expected_hits']:.0f} expected, {found['known_hits']} there. The most probable:"
    ]
    said = {True: "right", False: "wrong", None: ""}
    lines += [
        f"  {hit['id']}  {hit['probability']:.0%}  {said[hit['truth']]}" for hit in found["hits"]
    ]
    return "\n".join(lines) + "\n"
