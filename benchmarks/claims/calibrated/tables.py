"""Recipes (a method and how its scores are read) by setup: every figure, ranks, LPR, retrieval."""

from __future__ import annotations

from benchmarks.claims.calibrated.methods import PAIRS, SETUPS, SWEPT
from benchmarks.claims.tables import Results, Table, difference, mean, ranks, spread

RECIPES: dict[str, tuple[str, str]] = {
    "BCE": ("bce", "link"),
    "BCE + affine": ("bce", "link + affine"),
    "BCE, prior bias": ("bce, prior", "link"),
    "BCE, prior bias + affine": ("bce, prior", "link + affine"),
    "BCE, prior bias + beta": ("bce, prior", "link + beta"),
    "BCE, prior bias + per-label": ("bce, prior", "link + per-label"),
    "focal, sigmoid": ("focal", "sigmoid"),
    "focal, φ": ("focal", "link"),
    "focal, φ + affine": ("focal", "link + affine"),
    "ASL, sigmoid": ("asl", "sigmoid"),
    "ASL, φ": ("asl", "link"),
    "ASL, φ + affine": ("asl", "link + affine"),
    "ASL detached, sigmoid": ("asl, detached", "sigmoid"),
    "ASL detached, φ": ("asl, detached", "phi"),
    "ASL detached, right link": ("asl, detached", "link"),
    "ASL detached, right link + affine": ("asl, detached", "link + affine"),
    "ASL detached, prior bias, right link + affine": ("asl, detached, prior", "link + affine"),
    "two-way, sigmoid": ("twl", "sigmoid"),
    "two-way + temperature": ("twl", "sigmoid + temperature"),
    "two-way + affine": ("twl", "sigmoid + affine"),
    "SPA": ("spa", "link"),
    "SPA + affine": ("spa", "link + affine"),
    "SPA, prior bias": ("spa, prior", "link"),
    "SPA, prior bias + affine": ("spa, prior", "link + affine"),
    "SPA+LPR": ("spa+lpr", "link"),
    "SPA+LPR + affine": ("spa+lpr", "link + affine"),
    "SPA+LPR, prior bias": ("spa+lpr, prior", "link"),
    "SPA+LPR, prior bias + affine": ("spa+lpr, prior", "link + affine"),
}
"""As a row of a table: the method and how its scores are read."""

PUBLISHED = (
    "BCE",
    "focal, sigmoid",
    "focal, φ",
    "ASL detached, sigmoid",
    "ASL detached, φ",
    "two-way + temperature",
    "SPA",
    "SPA+LPR",
)
AFFINE = (
    "BCE + affine",
    "BCE, prior bias + affine",
    "focal, φ + affine",
    "ASL, φ + affine",
    "ASL detached, right link + affine",
    "two-way + affine",
    "SPA + affine",
    "SPA, prior bias + affine",
    "SPA+LPR + affine",
    "SPA+LPR, prior bias + affine",
)
TITLES = {
    "ACE": ("ACE, %", 100.0),
    "MCE": ("MCE (bins of at least 30), %", 100.0),
    "NLL": ("NLL × 1000", 1000.0),
}
PRECISIONS = {"mAP@y": "mAP@y (mean over labels), %", "mAP@x": "mAP@x (mean over rows), %"}


def tables(results: Results) -> list[Table]:
    """Every figure by recipe and setup, ranks over setups, LPR on each loss, retrieval."""
    found = [_readings(results, figure) for figure in TITLES]
    found += [_precisions(results, figure) for figure in PRECISIONS]
    found += [_ranks(results, "as published", PUBLISHED), _ranks(results, "+ affine", AFFINE)]
    found += [_pairs(results), _sweep(results), _retrieval(results), _truth(results)]
    return found


def _sweep(results: Results) -> Table:
    rows = []
    for setup in SWEPT:
        names = {"0": "spa", "0.03": "", "0.1": "", "0.3": "spa+lpr", "1": "", "3": "", "10": ""}
        for weight, known in names.items():
            name = known or f"spa+lpr, λ = {weight}"
            if known == "spa+lpr" and "=0.3)" not in results.settings(setup, known).get("loss", ""):
                continue
            cells = [
                spread(results.values(setup, name, "readings", reading, figure, scale=scale))
                for reading, figure, scale in (
                    ("link", "ACE", 100),
                    ("link", "MCE", 100),
                    ("link", "NLL", 1000),
                    ("link + affine", "ACE", 100),
                    ("link + affine", "NLL", 1000),
                )
            ]
            rows.append([setup, weight, *cells, spread(results.values(setup, name, "mAP@y"))])
    header = ["setup", "λ", "ACE, %", "MCE, %", "NLL × 1000"]
    header += ["ACE + affine", "NLL + affine", "mAP@y, %"]
    return Table("calibrated-lpr-weight", "The weight of LPR on SPA", header, rows)


def _readings(results: Results, figure: str) -> Table:
    title, scale = TITLES[figure]
    rows = []
    for recipe, (method, reading) in RECIPES.items():
        path = ("readings", reading, figure)
        cells = [spread(results.values(s, method, *path, scale=scale)) for s in SETUPS]
        rows.append([recipe, *cells])
    return Table(f"calibrated-{figure}", title, ["recipe", *SETUPS], rows)


def _precisions(results: Results, figure: str) -> Table:
    rows = []
    for method in dict.fromkeys(method for method, _ in RECIPES.values()):
        cells = [spread(results.values(s, method, figure)) for s in SETUPS]
        rows.append([method, *cells])
    return Table(f"calibrated-{figure}", PRECISIONS[figure], ["method", *SETUPS], rows)


def _ranks(results: Results, kind: str, recipes: tuple[str, ...]) -> Table:
    columns = {}
    for figure in ("ACE", "MCE", "NLL"):
        blocks = [
            [
                mean(results.values(s, RECIPES[r][0], "readings", RECIPES[r][1], figure))
                for r in recipes
            ]
            for s in SETUPS
        ]
        columns[figure] = ranks(recipes, blocks)
    for figure in PRECISIONS:
        blocks = [
            [-mean(results.values(s, RECIPES[r][0], figure)) for r in recipes] for s in SETUPS
        ]
        columns[figure] = ranks(recipes, blocks)
    rows = [
        [recipe, *(f"{found.means[recipe]:.1f}" for found in columns.values())]
        for recipe in recipes
    ]
    rows.append(["Friedman's p", *(f"{found.p:.1g}" for found in columns.values())])
    rows.append(["Nemenyi's difference", *(f"{found.critical:.1f}" for found in columns.values())])
    blocks = columns["ACE"].blocks
    return Table(
        f"calibrated-ranks-{kind.strip('+ ').replace(' ', '-')}",
        f"Mean ranks over {blocks} setups, recipes {kind} (1 is best)",
        ["recipe", *columns],
        rows,
        "Recipes whose ranks differ by less than Nemenyi's difference are not told apart (5 %). "
        "VOC appears with two heads and synthetic data twice, so the blocks are not quite "
        "independent.",
    )


def _pairs(results: Results) -> Table:
    rows = []
    for base in PAIRS:
        for setup in SETUPS:
            gaps = [
                difference(
                    results.values(setup, f"{base}+lpr", *path, scale=scale),
                    results.values(setup, base, *path, scale=scale),
                )
                for path, scale in (
                    (("readings", "link", "ACE"), 100),
                    (("readings", "link", "MCE"), 100),
                    (("readings", "link", "NLL"), 1000),
                    (("mAP@y",), 100),
                    (("mAP@x",), 100),
                )
            ]
            if gaps[0].n:
                rows.append([base, setup, *map(str, gaps)])
    return Table(
        "calibrated-lpr",
        "What LPR changes (with − without, through the loss's own link; 95 % interval over seeds)",
        ["loss", "setup", "ACE, %", "MCE, %", "NLL × 1000", "mAP@y, %", "mAP@x, %"],
        rows,
    )


ASL_AFFINE = "ASL detached, sigmoid + affine"
SEARCHED = (
    *("ASL detached, sigmoid", "ASL detached, right link", "two-way, sigmoid"),
    *("BCE", "BCE, prior bias", "SPA", "SPA+LPR", ASL_AFFINE, "two-way + affine"),
    *("BCE, prior bias + affine", "SPA + affine", "SPA+LPR + affine"),
)
LOOKED_FOR = ("voc2012, linear", "voc2012, mlp", "scene", "yeast", "emotions", "digits, cnn")


def retrieval(results: Results, setup: str, recipe: str) -> dict[int, dict[int, float]]:
    """mAP of queries by number of conditions, then by seed, in percent."""
    asl = {ASL_AFFINE: ("asl, detached", "sigmoid + affine")}
    method, reading = (RECIPES | asl)[recipe]
    found = results.by_seed(setup, method, "readings", reading, "retrieval")
    return {
        count: {seed: 100 * values[count - 1] for seed, values in found.items()}
        for count in range(1, 6)
    }


def _retrieval(results: Results) -> Table:
    rows = []
    for setup in LOOKED_FOR:
        for recipe in SEARCHED:
            by_count = retrieval(results, setup, recipe)
            if by_count[1]:
                rows.append([setup, recipe, *(spread(values) for values in by_count.values())])
    return Table(
        "calibrated-retrieval",
        "mAP of queries by number of conditions, % (every query with a hit, or 200 and more drawn)",
        ["setup", "recipe", *map(str, range(1, 6))],
        rows,
    )


def _truth(results: Results) -> Table:
    made = ("synthetic", "dependent")
    rows = []
    for recipe, (method, reading) in RECIPES.items():
        path = ("readings", reading, "KL")
        rows.append([recipe, *(spread(results.values(s, method, *path, scale=1000)) for s in made)])
    return Table(
        "calibrated-truth",
        "Divergence from the known probabilities, KL × 1000",
        ["recipe", "independent labels", "dependent labels"],
        rows,
    )
