"""Average-K accuracy by size; rare classes; sizes of sets; people's votes; batch sizes and α."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.average_k.methods import (
    ALPHAS,
    BATCHES,
    SETUPS,
    SHARED,
    TAIL,
    VALIDATED,
)
from benchmarks.claims.tables import Results, Table, spread

HEADS = {"avgk, ML head": ("avgk", "link"), "avgk, SCCP head": ("avgk", "sccp")}
READ = {
    "ce": ("ce", "link"),
    "ce, classes weighed alike": ("ce", "alike"),
    "an": ("an", "link"),
    "an, through softmax": ("an", "softmax"),
    "epr": ("epr", "link"),
    "role": ("role", "link"),
    "topk": ("topk", "softmax"),
    **HEADS,
    "avgk, both heads": ("avgk", "both"),
    "avgk, ML head through softmax": ("avgk", "softmax"),
    "spa": ("spa", "link"),
    "quasibinary": ("quasibinary", "link"),
}
"""The method and how its scores are made comparable between rows before one threshold."""


def at(results: Results, data: str, name: str, size: int, figure: str = "accuracy") -> Any:
    """A figure of the sets of mean size ``size``, by seed, in percent (sizes as they are)."""
    method, reading = READ[name]
    full = method if method in SHARED else f"{method}, K = {size}"
    scale = 1.0 if figure.startswith(("size", "largest")) else 100.0
    return results.values(data, full, "sets", reading, str(size), figure, scale=scale)


def tables(results: Results) -> list[Table]:
    """Accuracy by size; by frequency on the long tail; sizes; people's votes; end to end."""
    found = [_accuracy(results, data, sizes) for data, (_, sizes) in SETUPS.items()]
    return [
        *found,
        _validated(results),
        _frequency(results),
        _varied(results),
        _sizes(results),
        _votes(results),
        _digits(results),
    ]


def _validated(results: Results) -> Table:
    rows = []
    for data, (size, _, _) in VALIDATED.items():
        for name in ("ce", *HEADS, "avgk, both heads"):
            rows.append([data, str(size), name, spread(at(results, data, name, size), 2)])
    title = "Which head to read, on validation rows: average-K accuracy, %"
    return Table("average-k-head", title, ["data", "K", "method", "accuracy"], rows)


def _accuracy(results: Results, data: str, sizes: tuple[int, ...]) -> Table:
    rows = [[name, *(spread(at(results, data, name, size), 2) for size in sizes)] for name in READ]
    title = f"Average-K accuracy, {data}, %"
    header = ["method", *(f"K = {size}" for size in sizes)]
    return Table(f"average-k-{data.replace(':', '-')}", title, header, rows)


def _by_size(
    results: Results, data: str, sizes: tuple[int, ...], figures: tuple[str, ...], digits: int
) -> list[list[str]]:
    """A row for each method and size, a column for each figure."""
    return [
        [name, str(size), *(spread(at(results, data, name, size, f), digits) for f in figures)]
        for name in READ
        for size in sizes
    ]


def _frequency(results: Results) -> Table:
    rows = _by_size(results, TAIL, (2, 5, 10), ("few", "medium", "many"), digits=1)
    return Table(
        "average-k-frequency",
        "The same by frequency of the class, tinyimagenet:tail, mean over classes, %",
        ["method", "K", "few (< 10 rows)", "medium", "many (> 50)"],
        rows,
        "The tail is constructed: 100 rows for the most frequent class, 4 for the rarest, evenly "
        "in log; held-out rows follow the tail, test rows are balanced. Classes weighed alike: "
        "the same network through `shift_rates`, as if all classes were equally frequent.",
    )


def varied(results: Results, name: str, reading: str = "link") -> dict[int, float]:
    """Average-5 accuracy on the tail of a batch size or an α, by seed, in percent."""
    return results.values(TAIL, f"avgk, {name}", "sets", reading, "5", "accuracy")


def _varied(results: Results) -> Table:
    rows = [
        [name, *(spread(varied(results, name, reading), 2) for _, reading in HEADS.values())]
        for name in (*(f"batch {n}" for n in BATCHES), *(f"α = {a}" for a in ALPHAS))
    ]
    return Table(
        "average-k-batch-alpha",
        "Batch size (α = 3, rate chosen for each) and α (batch 64), tinyimagenet:tail, K = 5, %",
        ["two-head loss", "ML head", "SCCP head"],
        rows,
    )


def _sizes(results: Results) -> Table:
    rows = []
    for data, (_, sizes) in SETUPS.items():
        for name in ("ce", *HEADS):
            for size in sizes:
                figures = ("size", "size, promised", "empty", "single", "two to four", "largest")
                cells = [spread(at(results, data, name, size, f), 2) for f in figures]
                rows.append([data, name, str(size), *cells])
    header = ["data", "method", "K", "size on test", "with the guarantee"]
    header += ["empty, %", "single, %", "two to four, %", "largest"]
    return Table("average-k-sizes", "Sizes of sets on test rows", header, rows)


def _votes(results: Results) -> Table:
    figures = ("human votes inside", "size, where people agree", "size, where they do not")
    rows = _by_size(results, "cifar10h", SETUPS["cifar10h"][1], figures, digits=2)
    return Table(
        "average-k-votes",
        "CIFAR-10H: do the sets hold what people voted for?",
        ["method", "K", "votes inside, %", "size, calmer half", "size, most disputed tenth"],
        rows,
    )


def _digits(results: Results) -> Table:
    rows = [
        [name, spread(at(results, "digits:one", name, 2), 2)] for name in ("ce", "topk", *HEADS)
    ]
    return Table(
        "average-k-digits",
        "End to end: a small CNN on blurred single digits, average-2 accuracy, %",
        ["method", "K = 2"],
        rows,
    )
