"""The search for better defaults, on training rows alone, and its confirmation on test rows."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.calibrated import SETUPS
from benchmarks.claims.plan import Method
from benchmarks.claims.tables import Difference, Results, Table, difference, mean, ranks, spread

REAL = ("voc2012", "scene", "yeast", "emotions", "medical", "bibtex")
FEWER = {"voc2012": (1, 2), "bibtex": (1, 2)}
LOSSES = {
    "bce": "bce",
    "bce+lpr": "bce+lpr(weight=1)",
    "spa": "spa",
    "spa+lpr": "spa+lpr(weight=1)",
    "asl, detached": "asl(detach_weight=true)",
    "twl": "twl",
}
CANDIDATES: dict[str, dict[str, Any]] = {
    **{name: {"loss": loss, "batch_size": 128} for name, loss in LOSSES.items()},
    "bce, batch 32": {"loss": "bce", "batch_size": 32},
    "bce, batch by rows": {"loss": "bce", "batch_size": None},
}
"""What each changes in the defaults of ``credibly train``; calibrators are compared on each run."""

FURTHER: dict[str, dict[str, Any]] = {
    "rate 3e-4": {"learning_rate": 3e-4},
    "rate 3e-3": {"learning_rate": 3e-3},
    "60 epochs": {"epochs": 60},
    "dropout 0.7": {"dropout": 0.7},
    "average of weights": {"ema": 0.99},
}
"""Tried on top of BCE with the batch by rows; read through the affine map alone."""

ONE_LABEL = ("cifar10h", "tinyimagenet")
HEAD: dict[str, Any] = {"model": "mlp", "hidden": 256, "epochs": 15, "batch_size": 256}
"""For rows with one label each: which loss, with a head that is quick to train."""

DEFAULT: dict[str, Any] = {"loss": "auto", "batch_size": None, "calibrate": "affine"}
"""What the search settled, written out; ``credibly train`` has come to choose the calibrator."""

RIVALS = {
    "BCE, zero biases": ("bce", "link"),
    "official ASL, sigmoid": ("asl(detach_weight=true)", "sigmoid"),
    "two-way + temperature": ("twl", "sigmoid + temperature"),
    "SPA": ("spa", "link"),
    "SPA + affine": ("spa", "link + affine"),
}
"""Recipes of others, with the model and budget of the default: the loss and how it is read."""

MAPS = ("affine", "beta", "per-label", "choose")


def methods() -> list[Method]:
    """Candidates where a quarter of the training rows stands in for test rows; then the default."""
    search = [
        Method(name, f"{data}@search", f"{data}@search", settings, seeds=FEWER.get(data, (1, 2, 3)))
        for data in REAL
        for name, settings in (CANDIDATES | _further()).items()
    ]
    search += [
        Method(loss, f"{data}@search", f"{data}@search", {**HEAD, "loss": loss}, seeds=(1, 2, 3))
        for data in ONE_LABEL
        for loss in ("bce", "softmax")
    ]
    untouched = [Method("default", data, data, DEFAULT) for data in (*REAL, *ONE_LABEL)]
    rivals = [
        Method(loss, data, data, {**DEFAULT, "loss": loss, "prior_bias": False})
        for data in REAL
        for loss in dict.fromkeys(loss for loss, _ in RIVALS.values())
    ]
    return search + untouched + rivals


def _further() -> dict[str, dict[str, Any]]:
    base = CANDIDATES["bce, batch by rows"]
    return {name: {**base, **change} for name, change in FURTHER.items()}


def tables(results: Results, calibrated: Results, single: Results) -> list[Table]:
    """Candidates on validation rows; the default against other recipes on test rows."""
    return [
        _candidates(results, "NLL", 1000),
        _candidates(results, "ACE", 100),
        _tried_further(results),
        _one_label(results),
        _untouched(results),
        _rivals(results),
        _peers(calibrated),
        _single(single),
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


def _tried_further(results: Results) -> Table:
    rows = []
    for name in FURTHER:
        gaps = [
            difference(
                *(
                    results.values(
                        f"{data}@search", n, "readings", "link + affine", "NLL", scale=1000
                    )
                    for n in (name, "bce, batch by rows")
                )
            )
            for data in REAL
        ]
        rows.append([name, *map(str, gaps)])
    return Table(
        "defaults-further",
        "Other changes, NLL × 1000 after the affine map minus that without the change, validation",
        ["change", *REAL],
        rows,
    )


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
PEERS = {**RIVALS, "official ASL, sigmoid": ("asl, detached", "sigmoid")}
COLUMNS = {"NLL × 1000": ("NLL", 1000.0), "ACE, %": ("ACE", 100.0)}


def gaps(
    results: Results, setup: str, ours: tuple[str, str], peer: tuple[str, str]
) -> dict[str, Difference]:
    """Our recipe (method and reading) minus a peer's in the same setup, paired by seed."""
    found = {
        title: difference(
            results.values(setup, ours[0], "readings", ours[1], figure, scale=scale),
            results.values(setup, peer[0], "readings", peer[1], figure, scale=scale),
        )
        for title, (figure, scale) in COLUMNS.items()
    }
    for figure in ("mAP@y", "mAP@x"):
        found[f"{figure}, %"] = difference(
            results.values(setup, ours[0], figure), results.values(setup, peer[0], figure)
        )
    return found


def _peers(results: Results) -> Table:
    title = "The default's recipe (BCE, prior bias, affine) minus others, tuned alike, test"
    found = {
        (peer, setup): gaps(results, setup, OURS, recipe)
        for peer, recipe in PEERS.items()
        for setup in SETUPS
    }
    return _against("defaults-peers", title, found)


def _rivals(results: Results) -> Table:
    title = "`credibly train DATA` minus the same command with another's loss and reading, test"
    found = {
        (rival, data): gaps(results, data, ("default", "delivered"), recipe)
        for rival, recipe in RIVALS.items()
        for data in REAL
    }
    for data in ONE_LABEL:
        recipe = ("default", "link")  # which is softmax there
        found["cross-entropy", data] = gaps(results, data, ("default", "delivered"), recipe)
    return _against("defaults-rivals", title, found)


def _against(name: str, title: str, found: dict[tuple[str, str], dict[str, Difference]]) -> Table:
    """By other recipe and data; the note names every figure in which ours is the worse."""
    found = {key: each for key, each in found.items() if each["NLL × 1000"].n}
    against = [
        f"{other} on {data} ({figure} {gap.mean:+.2f})"
        for (other, data), each in found.items()
        for figure, gap in each.items()
        if (gap.sign > 0 if figure in COLUMNS else gap.sign < 0)
    ]
    note = f"Where ours is worse beyond the interval: {'; '.join(against) or 'nowhere'}."
    rows = [[*key, *map(str, each.values())] for key, each in found.items()]
    header = ["other recipe", "data", "NLL × 1000", "ACE, %", "mAP@y, %", "mAP@x, %"]
    return Table(name, title, header, rows, note)


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
        "One label per row: the default's recipe minus softmax, test",
        ["data", *COLUMNS, "top-1 error, %"],
        rows,
    )


def _untouched(results: Results) -> Table:
    rows = []
    for data in (*REAL, *ONE_LABEL):
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
