"""Losses on frozen features after 4, 12 and 30 epochs: the long runs, as rules and tables see them.

The plan is ``benchmarks/long_runs.toml``, the records are ``benchmarks/long_runs/results``. A setup
(``voc-features, 30 epochs``) counts once all of its seeds are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.claims import calibrated, quasibinary, two_way
from benchmarks.claims.findings import Finding
from benchmarks.claims.tables import Results, Table, spread
from benchmarks.long_runs import records
from benchmarks.long_runs.plan import Plan, Records

ROOT = Path(__file__).resolve().parents[2]
PLAN = ROOT / "benchmarks" / "long_runs.toml"
RECORDS = ROOT / "benchmarks" / "long_runs" / "results"
EXPERIMENT = "E4"

MAPS = {
    "BCE": ("bce", "raw"),
    "BCE + affine": ("bce", "raw + affine"),
    "BCE, prior bias": ("bce, prior", "raw"),
    "SPA": ("spa", "link"),
    "SPA+LPR": ("spa+lpr", "link"),
    "focal, sigmoid": ("focal", "raw"),
    "focal, φ": ("focal", "link"),
    "ASL, sigmoid": ("asl", "raw"),
    "ASL, φ": ("asl", "link"),
    "ASL detached, sigmoid": ("asl, detached", "raw"),
    "ASL detached, φ": ("asl, detached", "phi"),
    "ASL detached, right link": ("asl, detached", "link"),
    "ASL detached, right link + affine": ("asl, detached", "link + affine"),
    "ASL detached, raw + affine": ("asl, detached", "raw + affine"),
    "two-way + temperature": ("twl", "raw + temperature"),
    "two-way + affine": ("twl", "raw + affine"),
    "quasibinary": ("quasibinary", "link"),
    "softmax": ("softmax", "link"),
}
"""As a row of a table: the method, and the map from its scores to probabilities."""


class LongRuns(Results):
    """Finished units by setup, method and seed; every length of training is a setup.

    Args:
        whole: leave out methods of which a seed is missing, as verdicts do.
    """

    def __init__(self, plan: Plan, known: Records, whole: bool = True) -> None:
        self.plan, self.known = plan, known
        self.methods, self._found, self._sets = [], defaultdict(dict), {}
        units: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
        for record in known.values():
            if record["experiment"] == EXPERIMENT and not record["trial"]:
                units[record["setup"], record["method"]].append(record)
        for (setup, method), found in units.items():
            if not whole or len(found) == len(plan.setups[setup].seeds):
                for record in found:
                    self._add(setup, method, record)

    def _add(self, setup: str, method: str, record: Mapping[str, Any]) -> None:
        for training in record.get("results", ()):
            read = training["reads"][-1]
            name = f"{setup}, {read['epoch']} epochs"
            self._sets[name] = record["data"].removesuffix("-features")
            test = {
                **read["maps"]["raw"],
                "plateau": max(read["plateau"].values(), default=0.0),
                "readings": _readings(read["maps"]),
            }
            line = {"test": test, "held_out": read["held_out"], "settings": {}}
            for own in (method, "two-way") if method == "twl" else (method,):
                self._found[name, own][record["seed"]] = line

    @property
    def setups(self) -> list[str]:
        """In the order of the plan, then of the epochs."""
        return list(self._sets)

    def data_set(self, setup: str) -> str:
        return self._sets[setup]


def _readings(maps: Mapping[str, Any]) -> dict[str, Any]:
    """Figures by the names of readings in the rules; where the link is the sigmoid, under both."""
    found: dict[str, Any] = {}
    for name, figures in maps.items():
        reading, plus, map_ = name.partition(" + ")
        figures = {**figures, "mAP@y, probabilities": figures["mAP@y"]}
        if reading == "raw":
            found[f"sigmoid{plus}{map_}"] = figures
            if "link" not in maps:
                found[f"link{plus}{map_}"] = figures
        else:
            found[name] = figures
    return found


def read(folder: Path) -> LongRuns:
    return LongRuns(Plan.read(PLAN), records.read(folder))


def findings(results: LongRuns) -> dict[str, Finding]:
    """The claims that these runs test, each by its rule."""
    found = {
        **calibrated.findings(results, results.setups),
        **quasibinary.findings_several(results, results.setups),
        "002-beats-softmax-asl-bce": two_way.beats(results, results.setups),
    }
    return {claim: each for claim, each in found.items() if each.verdict != "reported"}


def tables(results: LongRuns) -> list[Table]:
    """Log loss, ACE and mAP by map and length, and what ASL's plateau costs; all finished units."""
    results = LongRuns(results.plan, results.known, whole=False)
    found = []
    for setup in dict.fromkeys(name.rpartition(", ")[0] for name in results.setups):
        own = [name for name in results.setups if name.rpartition(", ")[0] == setup]
        lengths = [name.rpartition(", ")[2] for name in own]
        figures = {"NLL × 1000": ("NLL", 1000), "ACE, %": ("ACE", 100), "mAP@y, %": ("mAP@y", 100)}
        rows = [
            [
                label,
                *(
                    spread(results.values(s, method, "readings", _old(map_), key, scale=scale))
                    for key, scale in figures.values()
                    for s in own
                ),
            ]
            for label, (method, map_) in MAPS.items()
        ]
        header = ["map", *(f"{title}, {length}" for title in figures for length in lengths)]
        title = f"{setup}: test rows after {', '.join(lengths)}"
        found.append(Table(f"long-runs-{setup}", title, header, rows))
    return [*found, _plateau(results)] if found else []


def _old(map_: str) -> str:
    """The name of a map in the rules."""
    return map_.replace("raw", "sigmoid")


def _plateau(results: LongRuns) -> Table:
    """Share of entries below the margin of ASL, and mAP@y by scores and by φ."""
    rows = []
    for setup in results.setups:
        for method in ("asl", "asl, detached"):
            link = "link" if method == "asl" else "phi"
            path = ("readings", link, "mAP@y, probabilities")
            values = results.values(setup, method, "plateau")
            rows.append(
                [
                    setup,
                    method,
                    str(len(values)),
                    spread(values, 2),
                    spread(results.values(setup, method, "mAP@y"), 2),
                    spread(results.values(setup, method, *path), 2),
                ]
            )
    header = [
        "setup",
        "loss",
        "seeds",
        "below the margin, %",
        "mAP@y by scores, %",
        "mAP@y by φ, %",
    ]
    title = "ASL: entries below the margin, and what their ties cost"
    return Table("long-runs-plateau", title, header, rows)


def progress(results: LongRuns) -> list[list[str]]:
    """By experiment: units done, units in the plan, and CPU hours of those done."""
    plan, known = results.plan, results.known
    left = defaultdict(int)
    for unit in plan.remaining(known):
        left[unit.experiment] += 1
    rows = []
    for name in sorted({experiment for experiment, _, _ in plan.queue}):
        done = [record for record in known.values() if record["experiment"] == name]
        hours = sum(record["cpu_seconds"] for record in done) / 3600
        rows.append([name, str(len(done)), str(len(done) + left[name]), f"{hours:.1f}"])
    return rows
