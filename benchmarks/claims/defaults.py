"""The search for better defaults, on training rows alone, and its confirmation on test rows."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.calibrated import SETUPS
from benchmarks.claims.plan import SEEDS, Method
from benchmarks.claims.tables import Difference, Results, Table, difference, mean, ranks, spread

REAL = ("voc2012", "scene", "yeast", "emotions", "medical", "bibtex")
FEWER = {"voc2012": (1, 2), "bibtex": (1, 2)}
CANDIDATES: dict[str, dict[str, Any]] = {
    "bce": {"loss": "bce"},
    "bce, batch 32": {"loss": "bce", "batch_size": 32},
    "bce+lpr": {"loss": "bce+lpr(weight=1)"},
    "spa": {"loss": "spa"},
    "spa+lpr": {"loss": "spa+lpr(weight=1)"},
    "asl, detached": {"loss": "asl(detach_weight=true)"},
    "twl": {"loss": "twl"},
}
"""What each changes in the defaults of ``credibly train``; calibrators are compared on each run."""

ONE_LABEL = ("cifar10h", "tinyimagenet")
HEAD: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
"""For rows with one label each: which loss, with a head that is quick to train."""

DEFAULT: dict[str, Any] = {"loss": "auto", "batch_size": None, "calibrate": "affine"}
"""What the search settled; the defaults of ``credibly train``, written out."""

MAPS = ("affine", "beta", "per-label", "choose")


def methods() -> list[Method]:
    """Candidates where a quarter of the training rows stands in for test rows; then the default."""
    search = [
        Method(name, f"{data}@search", f"{data}@search", settings, seeds=FEWER.get(data, (1, 2, 3)))
        for data in REAL
        for name, settings in CANDIDATES.items()
    ]
    search += [
        Method(loss, f"{data}@search", f"{data}@search", {**HEAD, "loss": loss}, seeds=(1, 2, 3))
        for data in ONE_LABEL
        for loss in ("bce", "softmax")
    ]
    return search + [Method("default", data, data, DEFAULT, seeds=SEEDS) for data in REAL]


def tables(results: Results, calibrated: Results, single: Results) -> list[Table]:
    """Candidates on validation rows; the default against other recipes on test rows."""
    return [
        _candidates(results, "NLL", 1000),
        _candidates(results, "ACE", 100),
        _one_label(results),
        _peers(calibrated),
        _single(single),
        _untouched(results),
    ]


# The search ----------------------------------------------------------------------------------


def _candidates(results: Results, figure: str, scale: float) -> Table:
    """Rows: candidate and calibrator; the last column their mean rank over data sets."""
    found: dict[tuple[str, str], list[dict[int, float]]] = {}
    for name in CANDIDATES:
        own = "sigmoid" if name == "twl" else "link"
        for map_ in MAPS:
            path = ("readings", f"{own} + {map_}", figure)
            found[name, map_] = [
                results.values(f"{data}@search", name, *path, scale=scale) for data in REAL
            ]
    blocks = [[mean(values[k]) for values in found.values()] for k in range(len(REAL))]
    ranked = ranks([f"{name}{map_}" for name, map_ in found], blocks)
    rows = [
        [name, map_, *(spread(each) for each in values), f"{ranked.means[name + map_]:.1f}"]
        for (name, map_), values in found.items()
    ]
    title = f"{figure}{' × 1000' if scale == 1000 else ', %'} on validation rows"
    note = f"Friedman's p {ranked.p:.1g}, Nemenyi's difference {ranked.critical:.1f}."
    header = ["candidate", "map", *REAL, "mean rank"]
    return Table(f"defaults-{figure}", title, header, rows, note)


def _one_label(results: Results) -> Table:
    rows = []
    for data in ONE_LABEL:
        for loss in ("bce", "softmax"):
            cells = [
                spread(results.values(f"{data}@search", loss, "readings", *path, scale=scale), 2)
                for path, scale in (
                    (("link", "NLL"), 1000),
                    (("link", "ACE"), 100),
                    (("link + affine", "NLL"), 1000),
                    (("link + affine", "ACE"), 100),
                )
            ]
            error = spread(results.values(f"{data}@search", loss, "top-1 error"), 2)
            rows.append([data, loss, *cells, error])
    header = ["data", "loss", "NLL × 1000", "ACE, %", "NLL + affine", "ACE + affine"]
    title = "Rows with one label each: which loss, on validation rows"
    return Table("defaults-one-label", title, [*header, "top-1 error, %"], rows)


# Test rows -----------------------------------------------------------------------------------

OURS = ("bce, prior", "link + affine")
PEERS = {
    "BCE, zero biases": ("bce", "link"),
    "official ASL, sigmoid": ("asl, detached", "sigmoid"),
    "two-way + temperature": ("twl", "sigmoid + temperature"),
    "SPA": ("spa", "link"),
    "SPA + affine": ("spa", "link + affine"),
}
COLUMNS = {"NLL × 1000": ("NLL", 1000.0), "ACE, %": ("ACE", 100.0)}


def gaps(results: Results, setup: str, peer: tuple[str, str]) -> dict[str, Difference]:
    """The default's recipe minus a peer's in the same setup, paired by seed."""
    found = {
        title: difference(
            results.values(setup, OURS[0], "readings", OURS[1], figure, scale=scale),
            results.values(setup, peer[0], "readings", peer[1], figure, scale=scale),
        )
        for title, (figure, scale) in COLUMNS.items()
    }
    for figure in ("mAP@y", "mAP@x"):
        found[f"{figure}, %"] = difference(
            results.values(setup, OURS[0], figure), results.values(setup, peer[0], figure)
        )
    return found


def _peers(results: Results) -> Table:
    rows, against = [], []
    for peer, recipe in PEERS.items():
        for setup in SETUPS:
            found = gaps(results, setup, recipe)
            if not found["NLL × 1000"].n:
                continue
            rows.append([peer, setup, *map(str, found.values())])
            for figure, gap in found.items():
                worse = gap.sign > 0 if figure in COLUMNS else gap.sign < 0
                if worse:
                    against.append(f"{peer} on {setup} ({figure} {gap.mean:+.2f})")
    note = f"Where the default is worse beyond the interval: {'; '.join(against) or 'nowhere'}."
    return Table(
        "defaults-peers",
        "The default's recipe (BCE, prior bias, affine) minus others, same head and budget, test",
        ["other recipe", "setup", "NLL × 1000", "ACE, %", "mAP@y, %", "mAP@x, %"],
        rows,
        note,
    )


def _single(results: Results) -> Table:
    rows = []
    for data in (
        "tinyimagenet:10",
        "tinyimagenet:50",
        "tinyimagenet:100",
        "tinyimagenet",
        "cifar10h",
    ):
        cells = []
        for figure, scale in COLUMNS.values():
            ours, theirs = (
                results.values(data, name, "readings", reading, figure, scale=scale)
                for name, reading in (("binary, prior", OURS[1]), ("softmax", "link"))
            )
            cells.append(str(difference(ours, theirs)))
        errors = [results.values(data, n, "top-1 error") for n in ("binary, prior", "softmax")]
        if errors[0]:
            rows.append([data, *cells, str(difference(*errors))])
    return Table(
        "defaults-single",
        "One label a row: the default's recipe minus softmax, test",
        ["data", *COLUMNS, "top-1 error, %"],
        rows,
    )


def _untouched(results: Results) -> Table:
    rows = []
    for data in REAL:
        cells = [
            spread(results.values(data, "default", "readings", "delivered", figure, scale=scale))
            for figure, scale in (("NLL", 1000), ("ACE", 100), ("MCE", 100))
        ]
        cells += [spread(results.values(data, "default", f)) for f in ("mAP@y", "mAP@x")]
        rows.append([data, *cells])
    return Table(
        "defaults-untouched",
        "`credibly train DATA` without a flag, test",
        ["data", "NLL × 1000", "ACE, %", "MCE, %", "mAP@y, %", "mAP@x, %"],
        rows,
    )
