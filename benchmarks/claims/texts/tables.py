"""Tables of the text study."""

from __future__ import annotations

from pathlib import Path

from benchmarks.claims.findings import Finding
from benchmarks.claims.tables import Results, Table, difference, spread
from benchmarks.claims.texts.methods import BY_SIZE, ONE_LABEL, SETUPS, SIZES
from benchmarks.studies import vqa

RECIPES = {
    "BCE": ("bce", "link"),
    "BCE, prior bias + affine": ("bce, prior", "link + affine"),
    "SPA": ("spa", "link"),
    "SPA + affine": ("spa", "link + affine"),
    "focal, sigmoid": ("focal", "sigmoid"),
    "focal, own link": ("focal", "link"),
    "ASL detached, sigmoid": ("asl, detached", "sigmoid"),
    "ASL detached, own link + affine": ("asl, detached", "link + affine"),
    "two-way, sigmoid": ("twl", "sigmoid"),
    "two-way + affine": ("twl", "sigmoid + affine"),
}
"""As a row of a table: the method and how its scores become probabilities."""


def tables(results: Results) -> list[Table]:
    """Every setup by recipe, and sets of labels by size."""
    return [*(_setup(results, setup) for setup in SETUPS), _sets(results)]


def _setup(results: Results, setup: str) -> Table:
    rows = []
    for recipe, (method, reading) in RECIPES.items():
        cells = [spread(results.values(setup, method, figure)) for figure in ("mAP@y", "mAP@x")]
        cells += [
            spread(results.values(setup, method, "readings", reading, figure, scale=scale))
            for figure, scale in (("ACE", 100), ("MCE", 100), ("NLL", 1000))
        ]
        rows.append([recipe, *cells])
    header = ["recipe", "mAP@y, %", "mAP@x, %", "ACE, %", "MCE, %", "NLL × 1000"]
    name = f"texts-{setup.replace(', ', '-')}"
    return Table(name, f"{setup} ({SETUPS[setup][0]}), test", header, rows)


def _sets(results: Results) -> Table:
    """Average-K accuracy on Banking77, by loss and by the probabilities used."""
    rows = []
    for setup in ONE_LABEL:
        for loss in BY_SIZE:
            cells: dict[str, list[str]] = {}
            for place, size in enumerate(SIZES):
                found = results.by_seed(setup, f"{loss}, K = {size:g}", "sets")
                for reading in dict.fromkeys(key for sets in found.values() for key in sets):
                    values = {
                        seed: 100 * sets[reading][f"{size:g}"]["accuracy"]
                        for seed, sets in found.items()
                        if f"{size:g}" in sets.get(reading, {})
                    }
                    cells.setdefault(reading, ["–"] * len(SIZES))[place] = spread(values)
            rows += [[setup, f"{loss}, {reading}", *own] for reading, own in cells.items()]
    header = ["setup", "loss, probabilities", *(f"K = {size:g}" for size in SIZES)]
    return Table("texts-sets", "Banking77: average-K accuracy, %", header, rows)


def questions() -> Finding:
    """SPA beside BCE on constructed questions about images, from the records of the study."""
    found = vqa.read_records(Path(vqa.__file__).with_suffix(".jsonl"))
    parts = []
    for figure in ("VQA accuracy, %", "ACE, %", "NLL × 1000"):
        one, other = (
            {each["seed"]: each[figure] for each in found if each["stage"] == stage}
            for stage in ("spa", "bce")
        )
        parts.append(f"{figure.removesuffix(', %')} {difference(one, other)}")
    return Finding("reported", f"SPA minus BCE on constructed questions: {', '.join(parts)}.")
