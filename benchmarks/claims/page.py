"""docs/results.md, its tables as CSV and its figures, from the finished runs alone."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.claims import (
    average_k,
    calibrated,
    cost,
    defaults,
    diagram,
    networks,
    normalizer,
    quasibinary,
    two_way,
)
from benchmarks.claims.findings import NOT_RUN, Finding
from benchmarks.claims.plan import Method
from benchmarks.claims.runner import Book
from benchmarks.claims.tables import Results, Table, mean
from benchmarks.studies.training import markdown
from credibly.plot import _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
NAMES = {
    "000": "Calibrated multi-label networks (SPA, LPR)",
    "001": "Quasibinary classifier",
    "002": "Two-way multi-label loss",
    "003": "Two-head average-K loss",
}
SHORT = {"000": "SPA, LPR", "001": "quasibinary", "002": "two-way", "003": "average-K"}
MARK = {
    "holds": "**holds**",
    "holds in part": "**holds in part**",
    "contradicted": "**contradicted**",
    "not seen": "not seen",
    "not reached": "not reached",
    "reported": "reported",
    "not run": "not run",
    "not testable": "not testable here",
}


KINDS = ("networks", "heads")
NETWORKS = ("digits, cnn", *networks.SETUPS)
"""Setups trained end to end on images; the others train heads on frozen features, or tables."""

HEADS = (*(setup for setup in calibrated.SETUPS if setup not in NETWORKS), networks.FEATURES)
ONE_LABEL_NETWORKS = ("digits:6+4", *networks.CIFAR_SETUPS)
ONE_LABEL_HEADS = (*quasibinary.GROWTH, "tinyimagenet:120+80")


def write(book: Book, page: Path, change: Callable[[Method], Method] | None = None) -> None:
    """The page, and beside the runs a CSV for each of its tables.

    ``change`` is what was done to every method before it was run, for a quick look.
    """
    results = _results(book, change)
    found = _findings(results, book.folder)
    plan = results["networks"].methods
    images = page.parent / "img" / "results"
    drawn = _figures(results, book.folder, images)
    seen = [
        networks.power(results["several"], KINDS[0], NETWORKS),
        networks.power(results["several"], KINDS[1], HEADS),
    ]
    sections = {
        "networks": [*networks.tables(results["networks"]), seen[0]],
        "000": [*calibrated.tables(results["calibrated"]), seen[1]],
        "001": [
            *quasibinary.tables(results["quasibinary"]),
            quasibinary.several(results["calibrated"]),
        ],
        "002": two_way.tables(results["two_way"]),
        "003": [*average_k.tables(results["average_k"]), cost.table(book.folder)],
        "defaults": defaults.tables(
            results["defaults"], results["calibrated"], results["quasibinary"]
        ),
    }
    for tables in sections.values():
        for table in tables:
            table.write(book.folder / "tables")
    notes = tomllib.loads((HERE / "notes.toml").read_text(encoding="utf-8"))
    text = [
        notes["top"].strip(),
        "## Claim by claim",
        notes["claims"].strip(),
        *_claims(found, notes, _kinds(results["several"])),
        "## Better defaults",
        notes["defaults"].strip(),
        *map(str, sections.pop("defaults")),
        "## Networks on real images",
        notes["networks"].strip(),
        *map(str, sections.pop("networks")),
        "### What was not run, and why",
        notes["not_run"].strip(),
        networks.unfinished(results["networks"], plan),
    ]
    for paper, tables in sections.items():
        text += [f"## Tables: {NAMES[paper]}", notes["tables"][paper].strip()]
        text += [*drawn.get(paper, []), *map(str, tables)]
    text += ["## Runs", _runs(book, results)]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(text) + "\n", encoding="utf-8")


def _results(book: Book, change: Callable[[Method], Method] | None = None) -> dict[str, Results]:
    """The runs of each study, and those that claims take from several studies."""
    results = {}
    for study in (calibrated, quasibinary, two_way, average_k, defaults):
        methods = study.methods()
        methods = methods if change is None else [change(method) for method in methods]
        results[study.__name__.rpartition(".")[2]] = Results(methods, book)
    plan = [*networks.methods(), *networks.heads()]
    plan = plan if change is None else [change(method) for method in plan]
    results["networks"] = Results(plan, book)
    results["several"] = Results([*results["calibrated"].methods, *plan], book)
    results["ranking"] = Results([_two_way_name(m) for m in results["several"].methods], book)
    results["one"] = Results([*results["quasibinary"].methods, *plan], book)
    return results


def _two_way_name(method: Method) -> Method:
    """The two-way study calls the paper's setting by its full name."""
    return dataclasses.replace(method, name="two-way") if method.name == "twl" else method


Columns = tuple[dict[str, Finding], dict[str, Finding]]


def _findings(results: dict[str, Results], folder: Path) -> Columns:
    """What networks trained on images say of each claim, and what heads and tables say."""
    several, one = results["several"], results["one"]
    trained = {
        **calibrated.findings(several, NETWORKS),
        **quasibinary.findings(one, ONE_LABEL_NETWORKS),
        **quasibinary.findings_several(several, NETWORKS),
        **two_way.findings(results["ranking"], NETWORKS, ()),
        **average_k.findings(results["average_k"], {"digits:one": (2,)}),
    }
    trained["002-transfer"] = two_way.findings(results["two_way"], (), (two_way.TRANSFER,))[
        "002-transfer"
    ]
    heads = {
        **calibrated.findings(several, HEADS),
        **quasibinary.findings(one, ONE_LABEL_HEADS),
        **quasibinary.findings_several(several, HEADS),
        **normalizer.finding(folder),
        **two_way.findings(results["two_way"], two_way.CHOSEN, ()),
        **average_k.findings(
            results["average_k"], {data: sizes for data, (_, sizes) in average_k.SETUPS.items()}
        ),
        **cost.finding(folder),
    }
    return trained, heads


def _kinds(results: Results) -> tuple[str, str]:
    """What the columns are called; a column that rests on digit scenes alone says so."""
    seeds = [len(results.by_seed(setup, "bce", "mAP@y")) for setup in networks.SETUPS]
    return (KINDS[0] if max(seeds) > 1 else "networks (digit scenes only)", KINDS[1])


def _claims(found: Columns, notes: dict[str, dict[str, str]], kinds: tuple[str, str]) -> list[str]:
    """Every claim of claims.toml: what it says, its numbers, ours, and what we make of it."""
    claims = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    parts: list[str] = []
    rows: list[list[str]] = []
    verdicts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for paper, title in NAMES.items():
        parts.append(f"### {title}")
        for claim in (claim for claim in claims if claim["paper"] == paper):
            both = [column.get(claim["id"], NOT_RUN) for column in found]
            if claim["test"].startswith("not testable"):
                both = [Finding("not testable", claim["test"].partition(": ")[2])] * 2
            for finding, counts in zip(both, verdicts, strict=True):
                counts[finding.verdict] += 1
            here, heading = f"#{claim['id']}", claim["title"]
            marks = [MARK[finding.verdict] for finding in both]
            rows.append([SHORT[paper], f"[{heading}]({here})", *marks])
            lines = [f"- paper: {claim['numbers']}"]
            for name, finding in zip(kinds, both, strict=True):
                if finding.ours != "–":
                    lines.append(f"- {name}: {finding.ours}")
            if claim["id"] in notes["claim"]:
                lines.append(f"- {notes['claim'][claim['id']].strip()}")
            parts.append(
                f"#### {heading} {{{here}}}\n\n**{claim['says']}** ({claim['where']}) — "
                f"{kinds[0]}: {marks[0]}; {kinds[1]}: {marks[1]}\n\n" + "\n".join(lines)
            )
    counted = [
        f"{name}: " + ", ".join(f"{number} {MARK[v]}" for v, number in counts.most_common())
        for name, counts in zip(kinds, verdicts, strict=True)
    ]
    listed = markdown(["paper", "claim", *kinds], rows)
    return [f"Of {len(rows)} claims, by {'; by '.join(counted)}.", listed, *parts]


def _runs(book: Book, results: dict[str, Results]) -> str:
    records = list(book.records.values())
    trials = sum(record["trial"] for record in records)
    seconds = sum(record["seconds"] for record in records)
    failed = [line for result in results.values() for line in result.failed()]
    lines = [
        f"{len(records)} runs, {trials} of them trials whose test rows nobody looked at; "
        f"{seconds / 3600:.1f} hours of CPU. Every run is a line of "
        "`benchmarks/claims/results/DATA.jsonl` with its settings, seed, command and figures; the "
        "tables are in `benchmarks/claims/results/tables/` as CSV.",
        f"Runs that failed: {'; '.join(failed)}." if failed else "No run failed.",
    ]
    return "\n\n".join(lines)


# Figures -------------------------------------------------------------------------------------


def _figures(results: dict[str, Results], folder: Path, images: Path) -> dict[str, list[str]]:
    images.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, list[str]] = {}
    for paper, name, alt, draw in (
        ("000", "retrieval", "mAP by number of conditions", _draw_retrieval),
        ("003", "average-k", "gain over cross-entropy by K", _draw_average_k),
    ):
        study = "calibrated" if paper == "000" else "average_k"
        axes = draw(results[study])
        if axes is not None:
            _save(axes, images / f"{name}.svg")
            drawn.setdefault(paper, []).append(f"![{alt}](img/results/{name}.svg)")
    for name, alt, axes in (
        ("diagram", "reliability of the four most probable labels", _draw_diagram(folder)),
        ("normalizer", "log C during training", _draw_normalizer(normalizer.read(folder))),
    ):
        if axes is not None:
            _save(axes, images / f"{name}.svg")
            drawn.setdefault("001", []).append(f"![{alt}](img/results/{name}.svg)")
    return drawn


def _save(axes: Axes, path: Path) -> None:
    """The same bytes for the same drawing: no date, no random names."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.stem}):
        _style.figure_of(axes).savefig(path, metadata={"Date": None})


def _draw_diagram(folder: Path) -> Axes | None:
    curves = diagram.read(folder)
    if not curves:
        return None
    axes = _style.axes(None, 5, 4.5)
    axes.plot([0, 1], [0, 1], color=_style.MUTED, linewidth=1)
    for name, curve in curves.items():
        enough = np.array(curve["counts"]) >= 30
        places, heights = (
            np.array(curve["confidence"])[enough],
            np.array(curve["frequency"])[enough],
        )
        colour = _style.colour(_style.series(axes))
        axes.plot(places, heights, "o-", color=colour, label=name, markersize=4)
    axes.set_xlabel("probability given to a label among the four most probable")
    axes.set_ylabel("how often it was there")
    _style.legend(axes)
    return axes


def _draw_retrieval(results: Results) -> Axes | None:
    setup = "voc2012, linear"
    axes = _style.axes(None, 6, 4)
    for recipe in (
        "BCE, prior bias + affine",
        "BCE",
        "SPA",
        "SPA+LPR",
        "ASL detached, right link",
        "ASL detached, sigmoid",
    ):
        by_count = calibrated.retrieval(results, setup, recipe)
        heights = [mean(values) for values in by_count.values()]
        if np.isfinite(heights).all():
            colour = _style.colour(_style.series(axes))
            axes.plot(list(by_count), heights, "o-", color=colour, label=recipe, markersize=4)
    if not _style.series(axes):
        return None
    axes.set_xticks(range(1, 6))
    axes.set_xlabel("conditions in the query")
    axes.set_ylabel("mAP of queries, %")
    axes.set_title("VOC 2012, linear head: raw scores lose with every condition", fontsize=10)
    _style.legend(axes)
    return axes


def _draw_average_k(results: Results) -> Axes | None:
    axes = _style.axes(None, 6, 4)
    for data, (_, sizes) in average_k.SETUPS.items():
        for name in average_k.HEADS:
            gains = [
                mean(average_k.at(results, data, name, k))
                - mean(average_k.at(results, data, "ce", k))
                for k in sizes
            ]
            if np.isfinite(gains).all():
                colour = _style.colour(_style.series(axes))
                label = f"{data}, {name.removeprefix('avgk, ')}"
                axes.plot(sizes, gains, "o-", color=colour, label=label, markersize=4)
    if not _style.series(axes):
        return None
    axes.axhline(0, color=_style.MUTED, linewidth=1)
    axes.set_xlabel("K")
    axes.set_ylabel("average-K accuracy, points above cross-entropy")
    _style.legend(axes)
    return axes


def _draw_normalizer(curves: dict[str, list[float]]) -> Axes | None:
    if not curves:
        return None
    axes = _style.axes(None, 6, 4)
    for name, curve in curves.items():
        steps = np.arange(1, len(curve) + 1)
        colour = _style.colour(_style.series(axes))
        axes.plot(steps[::4], curve[::4], color=colour, label=name, linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("log C; for softmax mean log Σ exp, rows centred")
    _style.legend(axes)
    return axes


__all__ = ["Table", "write"]
