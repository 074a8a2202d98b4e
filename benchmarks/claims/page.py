"""Pages of the papers, the record of the runs, tables as CSV and figures, from finished runs.

``docs/papers/`` has a short page for each paper; ``benchmarks/results/`` has everything."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.claims import (
    average_k,
    calibrated,
    cost,
    defaults,
    figures,
    lengths,
    networks,
    normalizer,
    quasibinary,
    several_labels,
    texts,
    two_way,
)
from benchmarks.claims.findings import NOT_RUN, Finding
from benchmarks.claims.plan import Method
from benchmarks.claims.quotes import Quotes, share_beyond_zero
from benchmarks.claims.runner import Book
from benchmarks.claims.tables import Results, Table
from benchmarks.studies import two_heads
from benchmarks.studies.training import markdown

HERE = Path(__file__).parent
NAMES = {
    "000": "Calibrated multi-label networks (SPA, LPR)",
    "001": "Quasibinary classifier",
    "002": "Two-way multi-label loss",
    "003": "Two-head average-K loss",
}
SHORT = {"000": "SPA, LPR", "001": "quasibinary", "002": "two-way", "003": "average-K"}
PAGES = {"000": "spa", "001": "quasibinary", "002": "two-way", "003": "average-k"}
DRAWN = {
    "000": ("maps", "retrieval"),
    "001": ("diagram", "normalizer"),
    "002": (),
    "003": ("average-k",),
}
MATTER = ("maps", "biases", "retrieval")
"""The figures of the overview."""

DOCS, RECORD = Path("docs/papers"), Path("benchmarks/results")
IMAGES = {DOCS: "../img", RECORD: "../../docs/img"}
POOLED = r"(\S+ \[[^\]]+\])"
"""A pooled difference with its interval, in what was found."""

SHORT_ENOUGH = 60
"""Words of a finding that a paper's page shows whole where ``notes.toml`` names no part of it."""

MARK = {
    "holds": "**holds**",
    "holds in part": "**holds in part**",
    "not reproduced": "**not reproduced**",
    "not seen": "not seen",
    "not reached": "not reached",
    "reported": "reported",
    "not run": "not run",
    "not testable": "not testable here",
}
AMENDED = "2026-11-18"
"""When rules were amended. Verdicts are those of the written rules; amended ones stand beside."""

CLEAR = ("holds", "holds in part", "not reproduced")
"""Verdicts that decide a claim."""

HEADER = "---\nsearch:\n  boost: 0.3\n---"
"""The site's search ranks guides above the papers."""

KINDS: tuple[str, ...] = ("heads", "features", "texts", "networks")
TITLES = {
    "heads": "heads",
    "features": "features",
    "texts": "texts",
    "networks": "short networks",
}
NETWORKS = ("digits, cnn", *networks.BY_RULE)
"""Setups trained end to end on images; the others train heads on frozen features, or tables."""

HEADS = (*(setup for setup in calibrated.SETUPS if setup not in NETWORKS), networks.FEATURES)
FROM_SCRATCH = networks.CIFAR_SETUPS
ONE_LABEL_NETWORKS = ("digits:6+4", *FROM_SCRATCH, networks.FROM_WEIGHTS, networks.NO_LABEL)
ONE_LABEL_HEADS = (*quasibinary.GROWTH, "tinyimagenet:120+80")

Notes = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper with its verdicts, in the order of ``KINDS``."""

    entry: dict[str, str]
    findings: tuple[Finding, ...]

    @property
    def marks(self) -> list[str]:
        return [MARK[finding.verdict] for finding in self.findings]


def write(
    book: Book,
    root: Path,
    change: Callable[[Method], Method] | None = None,
    long_runs: Path = lengths.RECORDS,
) -> None:
    """Write the pages and figures of the papers, the record, and every table as CSV.

    ``change`` is what was done to every method before it was run, for a quick look.
    """
    results = _results(book, change, long_runs)
    claims = _claims(_findings(results, book.folder))
    kinds = tuple(TITLES[kind] for kind in KINDS)
    drawn = figures.draw(results, book, root / "docs" / "img" / "results")
    tables = _tables(results, book)
    notes = _quotes(tables, claims, results).fill(_notes())
    for table in (table for group in tables.values() for table in group):
        table.write(book.folder / "tables")
    pages = {DOCS / "index": [HEADER, *_overview(claims, kinds, notes, drawn)]}
    for paper, name in PAGES.items():
        own = [claim for claim in claims if claim.entry["paper"] == paper]
        pages[DOCS / name] = [HEADER, *_paper(paper, own, kinds, notes, drawn)]
        pages[RECORD / name] = [
            f"# {NAMES[paper]}",
            *(_picture(name, drawn, RECORD) for name in DRAWN[paper] if name in drawn),
            "## Claims",
            notes["claims"].strip(),
            *(_claim(claim, kinds, notes) for claim in own),
            "## Tables",
            notes["tables"][paper].strip(),
            *map(str, tables[paper]),
        ]
    pages[RECORD / "networks"] = [
        "# Networks on real images",
        notes["networks"].strip(),
        *(_picture(name, drawn, RECORD) for name in ("biases",) if name in drawn),
        "## The claims with a head start",
        notes["with_start"].strip(),
        _with_start(results, claims),
        "## Tables",
        *map(str, tables["networks"]),
        "## What was not run, and why",
        notes["not_run"].strip(),
        networks.unfinished(results["networks"], results["networks"].methods),
    ]
    pages[RECORD / "long-runs"] = [
        "# Long runs",
        notes["long_runs"].strip(),
        "## Tables",
        *map(str, tables["features"]),
    ]
    pages[RECORD / "texts"] = [
        "# Texts",
        notes["texts"].strip(),
        "## Tables",
        *map(str, tables["texts"]),
        networks.unfinished(results["texts"], results["texts"].methods),
    ]
    pages[RECORD / "defaults"] = [
        "# Better defaults",
        notes["defaults"].strip(),
        "## Tables",
        *map(str, tables["defaults"]),
    ]
    pages[RECORD / "README"] = [
        "# Records of the measurements",
        notes["record"].strip(),
        "## How it was measured",
        notes["method"].strip(),
        "## Rules",
        notes["rules"].strip(),
        _coded(claims, notes["coded"]),
        "## Amended rules",
        notes["amended"].strip(),
        _moved(claims),
        "## Undecided claims",
        notes["undecided"].strip(),
        _undecided(claims, notes["claimed"]),
        "## Runs",
        _runs(book, results),
    ]
    for name, parts in pages.items():
        path = root / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _notes() -> Notes:
    """The prose of the pages, with quotations that are not filled in yet."""
    return tomllib.loads((HERE / "notes.toml").read_text(encoding="utf-8"))


def _quotes(tables: dict[str, list[Table]], claims: list[Claim], results: dict[str, Any]) -> Quotes:
    """What prose can quote: every table, every finding, and how much was decided."""
    decided = [
        [kind, str(len(claims)), str(sum(claim.findings[k].verdict in CLEAR for claim in claims))]
        for k, kind in enumerate(KINDS)
    ]
    counts = [
        [kind, _count((claim.findings[k].verdict for claim in claims), every=True)]
        for k, kind in enumerate(KINDS)
    ]
    every = [table for group in tables.values() for table in group]
    number, beyond = share_beyond_zero(every)
    chance = ["differences", str(number), str(beyond), f"{0.05 * number:.0f}"]
    every += [
        Table("verdicts", "", ["kind", "claims", "decided"], decided),
        Table("verdict counts", "", ["kind", "counts"], counts),
        Table(
            "long runs",
            "",
            ["experiment", "done", "planned", "hours"],
            lengths.progress(results["features"]),
        ),
        Table("intervals", "", ["", "number", "beyond zero", "by chance"], [chance]),
    ]
    found = {c.entry["id"]: dict(zip(KINDS, c.findings, strict=True)) for c in claims}
    return Quotes(every, found)


def _tables(results: dict[str, Any], book: Book) -> dict[str, list[Table]]:
    """Every table, by the paper or study on whose page it stands."""
    power = [
        networks.power(results["several"], kind, setups)
        for kind, setups in zip(
            ("networks", "heads"), ((*NETWORKS, *networks.WITH_START), HEADS), strict=True
        )
    ]
    return {
        "networks": [*networks.tables(results["networks"]), power[0]],
        "000": [*calibrated.tables(results["calibrated"]), power[1]],
        "001": [
            *quasibinary.tables(results["quasibinary"]),
            quasibinary.several(results["calibrated"]),
        ],
        "002": two_way.tables(results["two_way"]),
        "features": lengths.tables(results["features"]),
        "texts": texts.tables(results["texts"]),
        "003": [
            *average_k.tables(results["average_k"]),
            _optimizer(),
            _table_1(),
            cost.table(book.folder),
        ],
        "defaults": defaults.tables(
            results["defaults"], results["calibrated"], results["quasibinary"]
        ),
    }


def _optimizer() -> Table:
    """The two-head loss and cross-entropy by the printed optimizer, and with a chosen penalty."""
    title = "By the printed optimizer: average-K accuracy, linear heads, tinyimagenet, %"
    rows = two_heads.rows_of(two_heads.records())
    note = "`python -m benchmarks.studies.two_heads`; three seeds, thresholds at exact sizes."
    return Table("average-k-optimizer", title, two_heads.HEADER, rows, note)


def _table_1() -> Table:
    """Table 1 of the paper by its command, on other data: `credibly papers average-k --table 1`."""
    found = json.loads((HERE / "results" / "average-k-table-1.json").read_text(encoding="utf-8"))
    column = "set coverage"
    rows = [row for row in found["rows"] if row["runs"]]
    rows.sort(key=lambda row: -row["ours"][column])
    cells = [
        [
            row["method"],
            str(row["runs"]),
            f"{row['ours'][column]:.1f}",
            f"{row['printed'][column]:g}",
        ]
        for row in rows
    ]
    note = (
        "`credibly papers average-k --table 1 --data tinyimagenet.npz --model linear --epochs 30 "
        "--seeds 3 --out FOLDER --run --json`: the preset with a linear head and 30 epochs "
        "(300 in print). The data are not the paper's: compare the order."
    )
    title = "Table 1 of the paper on tinyimagenet features: average-5 accuracy, %"
    header = ["method", "seeds", "ours", "printed, CIFAR-100"]
    return Table("average-k-table-1", title, header, cells, note)


def _results(
    book: Book,
    change: Callable[[Method], Method] | None = None,
    long_runs: Path = lengths.RECORDS,
) -> dict[str, Any]:
    """The runs of each study, and those that claims take from several studies."""
    results = {}
    for study in (calibrated, quasibinary, two_way, average_k, defaults, texts):
        methods = study.methods()
        methods = methods if change is None else [change(method) for method in methods]
        results[study.__name__.rpartition(".")[2]] = Results(methods, book)
    plan = [*networks.methods(), *networks.heads()]
    plan = plan if change is None else [change(method) for method in plan]
    results["networks"] = Results(plan, book)
    results["features"] = lengths.read(long_runs)
    results["several"] = Results([*results["calibrated"].methods, *plan], book)
    results["ranking"] = Results([_two_way_name(m) for m in results["several"].methods], book)
    for name, study in (("one", "quasibinary"), ("sets", "average_k"), ("probes", "two_way")):
        results[name] = Results([*results[study].methods, *plan], book)
    return results


def _two_way_name(method: Method) -> Method:
    """The two-way study calls the paper's setting by its full name."""
    return dataclasses.replace(method, name="two-way") if method.name == "twl" else method


Columns = tuple[dict[str, Finding], ...]


def _findings(results: dict[str, Any], folder: Path) -> Columns:
    """What each kind of run says of each claim, in the order of ``KINDS``."""
    several, one = results["several"], results["one"]
    sure = several_labels.shares(folder)
    trained = {
        **calibrated.findings(several, NETWORKS),
        **quasibinary.findings(one, ONE_LABEL_NETWORKS, FROM_SCRATCH),
        **quasibinary.findings_several(several, NETWORKS, sure),
        **two_way.findings(results["ranking"], NETWORKS, ()),
        "002-beats-softmax-asl-bce": two_way.beats(results["ranking"], NETWORKS),
        "001-few-violations": quasibinary.violations(
            ((several, NETWORKS), (one, ONE_LABEL_NETWORKS))
        ),
        **average_k.findings(results["sets"], {"digits:one": (2,), **networks.SETS_SETUPS}),
    }
    trained |= normalizer.finding(folder, normalizer.NETWORK)
    trained["003-cheap"] = average_k.cheap(results["sets"], networks.SETS_SETUPS)
    probes = (two_way.TRANSFER, networks.THROUGH)
    trained["002-transfer"] = two_way.findings(results["probes"], (), probes)["002-transfer"]
    heads = {
        **calibrated.findings(several, HEADS),
        **quasibinary.findings(one, ONE_LABEL_HEADS),
        **quasibinary.findings_several(several, HEADS, sure),
        **normalizer.finding(folder, normalizer.HEADS),
        **two_way.findings(results["two_way"], two_way.CHOSEN, ()),
        "002-beats-softmax-asl-bce": two_way.beats(results["ranking"], HEADS),
        "001-few-violations": quasibinary.violations(((several, HEADS), (one, ONE_LABEL_HEADS))),
        **average_k.findings(
            results["average_k"], {data: sizes for data, (_, sizes) in average_k.SETUPS.items()}
        ),
        **cost.finding(folder),
    }
    read = calibrated.findings(results["texts"], tuple(texts.SETUPS))
    read = {claim: found for claim, found in read.items() if found.verdict != "reported"}
    read["000-vqa"] = texts.questions()
    return heads, lengths.findings(results["features"]), read, trained


def _with_start(results: dict[str, Any], claims: list[Claim]) -> str:
    """What the same rules say of networks with a head start."""
    found = {
        **calibrated.findings(results["several"], networks.WITH_START),
        **two_way.findings(results["ranking"], networks.WITH_START, ()),
        "002-beats-softmax-asl-bce": two_way.beats(results["ranking"], networks.WITH_START),
    }
    rows = []
    for claim in claims:
        own = found.get(claim.entry["id"], NOT_RUN)
        if own.verdict in ("holds", "holds in part", "not reproduced", "not seen"):
            short = claim.marks[KINDS.index("networks")]
            rows.append([_linked(claim), short, MARK[own.verdict], own.ours])
    return markdown(["claim", "random last layer", "head start", "with a head start"], rows)


def _claims(found: Columns) -> list[Claim]:
    """Every claim of claims.toml, with what was found."""
    entries = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    claims = []
    for entry in entries:
        missing = NOT_RUN
        if entry["test"].startswith("not testable"):
            missing = Finding("not testable", entry["test"].partition(": ")[2])
        claims.append(Claim(entry, tuple(column.get(entry["id"], missing) for column in found)))
    return claims


def _overview(
    claims: list[Claim], kinds: tuple[str, ...], notes: Notes, drawn: dict[str, str]
) -> list[str]:
    """Verdicts by paper, the figures that matter, and what follows."""
    verdicts, appendix = [], []
    for paper, name in PAGES.items():
        own = [claim for claim in claims if claim.entry["paper"] == paper]
        *counts, short = [
            _count(claim.findings[kind].verdict for claim in own) for kind in range(len(kinds))
        ]
        link = f"[{SHORT[paper]}]({name}.md)"
        verdicts.append([link, *counts, notes["verdict"][paper]])
        appendix.append([link, short])
    pictures = [_picture(name, drawn, DOCS) for name in MATTER if name in drawn]
    return [
        notes["front"].strip(),
        markdown(["paper", *kinds[:-1], "what follows"], verdicts),
        notes["counts"].strip(),
        '<div class="figures" markdown="1">\n\n' + "\n".join(pictures) + "\n\n</div>",
        notes["figures"].strip(),
        notes["how_to_read"].strip(),
        notes["short"].strip(),
        "## Appendix: random last layer, 3 epochs {#short-networks}",
        notes["appendix"].strip(),
        markdown(["paper", kinds[-1]], appendix),
    ]


def _paper(
    paper: str,
    claims: list[Claim],
    kinds: tuple[str, ...],
    notes: Notes,
    drawn: dict[str, str],
) -> list[str]:
    """A paper in short: every claim with its rule, verdicts and the differences behind them."""
    listed = [[f"[{c.entry['title']}](#{c.entry['id']})", *c.marks] for c in claims]
    return [
        f"# {NAMES[paper]}",
        notes["paper"][paper].strip(),
        markdown(["claim", *kinds], listed),
        notes["read"].strip().format(record=f"benchmarks/results/{PAGES[paper]}.md"),
        *(_picture(name, drawn, DOCS) for name in DRAWN[paper] if name in drawn),
        "## Claim by claim",
        *(_in_short(claim, kinds, notes) for claim in claims),
        "## As printed {#as-printed}",
        notes["printed"].strip().format(missing=notes["missing"][paper]),
        _printed(paper),
    ]


def printed() -> dict[str, list[list[str]]]:
    """Return what each paper prints: item, call, test, what differs."""
    return tomllib.loads((HERE / "printed.toml").read_text(encoding="utf-8"))


def _printed(paper: str) -> str:
    """Return every item of a paper with the call that runs it and the test that checks it."""
    rows = [
        [item, call, f"`{test}`", differs or "as printed"]
        for item, call, test, differs in printed()[paper]
    ]
    return markdown(["printed", "call", "test", "result"], rows)


def _in_short(claim: Claim, kinds: tuple[str, ...], notes: Notes) -> str:
    """A claim, the end of its written rule, and by kind of run the verdict and what it rests on."""
    entry = claim.entry
    id_, test = entry["id"], entry["test"]
    rule = test[test.index("Holds if") :] if "Holds if" in test else test
    lines = [f"- Rule: {rule}"]
    if id_ in notes["coded"]:
        lines.append(f"- Judged by: {notes['coded'][id_].strip()}.")
    if id_ in notes["claimed"]:
        lines.append(f"- Claimed: {notes['claimed'][id_]}.")
    comment = notes["claim"].get(id_, "").strip()
    head = f"### {entry['title']} {{#{id_}}}\n\n**{entry['says']}** ({entry['where']})"
    found = _found(claim, kinds, notes["shown"].get(id_, {}))
    return "\n\n".join(filter(None, [head, "\n".join(lines), found, comment]))


def _found(claim: Claim, kinds: tuple[str, ...], shown: dict[str, str]) -> str:
    """A row per kind of run: the verdict and the differences, or what was found in words."""
    rows = []
    for name, mark, finding in zip(kinds, claim.marks, claim.findings, strict=True):
        if finding.verdict in ("not run", "not testable"):
            continue
        cells = [_difference(finding.ours, find) or "–" for find in shown.values()]
        if not shown:
            short = len(finding.ours.split()) <= SHORT_ENOUGH
            cells = [finding.ours.rstrip(".") if short else ""]
        rows.append([name, mark, *cells])
        for each in finding.amended:
            cells = ["" for _ in cells]
            rows.append([f"{name}, amended on {AMENDED}: {each.rule}", MARK[each.verdict], *cells])
    return markdown(["by", "verdict", *(shown or ["found"])], rows) if rows else ""


def _amended(name: str, finding: Finding) -> list[str]:
    """The verdicts by amended rules."""
    return [
        f"- {name}, amended on {AMENDED} ({each.rule}): {MARK[each.verdict]}."
        for each in finding.amended
    ]


def _difference(ours: str, find: str) -> str:
    """The part of a finding that a pattern names, with the smallest difference it could see."""
    find = find.replace("pooled POOLED", f"(?:pooled|alone) {POOLED}").replace("POOLED", POOLED)
    match = re.search(find + r"(?:, visible from (\d+\.\d+))?", ours)
    if match is None:
        return ""
    seen = f" (visible from {match[2]})" if match[2] else ""
    return re.sub(r"(?<!\w)-(?=\d)", "−", match[1]) + seen


def _count(verdicts: Iterable[str], *, every: bool = False) -> str:
    """How often each verdict was reached; of those that say little only the number unless asked."""
    counts = Counter(verdicts)
    if every:
        return ", ".join(f"{number} {MARK[name]}" for name, number in counts.most_common())
    if not counts.keys() - {"not run", "not testable"}:
        return "not run"
    parts = [f"{counts[name]} {name}" for name in CLEAR if counts[name]]
    other = sum(number for name, number in counts.items() if name not in CLEAR)
    return ", ".join([*parts, f"{other} open"] if other else parts)


def _picture(name: str, drawn: dict[str, str], folder: Path) -> str:
    return f"![{drawn[name]}]({IMAGES[folder]}/results/{name}.svg)"


def _coded(claims: list[Claim], coded: dict[str, str]) -> str:
    """Links to the claims that are judged by another rule than the written one."""
    return "\n".join(f"- {_linked(c)}" for c in claims if c.entry["id"] in coded)


def _moved(claims: list[Claim]) -> str:
    """Every verdict that a rule amended later would change."""
    rows = [
        [_linked(claim), TITLES[kind], MARK[finding.verdict], MARK[each.verdict], each.rule]
        for claim in claims
        for kind, finding in zip(KINDS, claim.findings, strict=True)
        for each in finding.amended
    ]
    return markdown(["claim", "by", "as written", "as amended", "amended rule"], rows)


def _linked(claim: Claim) -> str:
    """A link to a claim on the record of its paper."""
    entry = claim.entry
    return f"[{entry['title']}]({PAGES[entry['paper']]}.md#{entry['id']})"


def _undecided(claims: list[Claim], claimed: dict[str, str]) -> str:
    """What a paper claims beside what these runs could have seen, where they saw nothing."""
    rows = []
    for claim in claims:
        entry = claim.entry
        for kind, finding in zip(KINDS, claim.findings, strict=True):
            if finding.verdict == "not seen":
                seen = ", ".join(re.findall(r"visible from (\d+\.\d+)", finding.ours)) or "–"
                rows.append([_linked(claim), TITLES[kind], claimed[entry["id"]], seen])
    return markdown(["claim", "by", "claimed", "visible from, points"], rows)


def _claim(claim: Claim, kinds: tuple[str, ...], notes: Notes) -> str:
    """What a claim says, its numbers and rule, our numbers, and what we make of it."""
    entry, marks = claim.entry, claim.marks
    lines = [f"- paper: {entry['numbers']}", f"- rule as written: {entry['test']}"]
    if entry["id"] in notes["coded"]:
        lines.append(f"- judged by: {notes['coded'][entry['id']].strip()}")
    for name, finding in zip(kinds, claim.findings, strict=True):
        if finding.ours != "–":
            lines.append(f"- {name}: {finding.ours}")
        lines += _amended(name, finding)
    if entry["id"] in notes["claim"]:
        lines.append(f"- {notes['claim'][entry['id']].strip()}")
    return (
        f"### {entry['title']} {{#{entry['id']}}}\n\n**{entry['says']}** ({entry['where']}) — "
        + "; ".join(f"{kind}: {mark}" for kind, mark in zip(kinds, marks, strict=True))
        + "\n\n"
        + "\n".join(lines)
    )


def _runs(book: Book, results: dict[str, Any]) -> str:
    records = list(book.records.values())
    trials = sum(record["trial"] for record in records)
    seconds = sum(record["seconds"] for record in records)
    failed = [line for result in results.values() for line in result.failed()]
    lines = [
        f"{len(records)} runs, {trials} of them trials, which are compared on held-out rows; "
        f"{seconds / 3600:.1f} hours of CPU. Every run is a line of "
        "`benchmarks/claims/results/DATA.jsonl` with its settings, seed, command and figures; the "
        "tables are in `benchmarks/claims/results/tables/` as CSV.",
        f"Runs that failed: {'; '.join(failed)}." if failed else "No run failed.",
    ]
    return "\n\n".join(lines)
