"""What ``benchmarks.scale`` times of searches and evaluations, beside their peers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TOP = 100
Step = Callable[[], object]


def memory_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return a search in memory, by credibly and as numpy does it."""
    from credibly.retrieve import Index

    generator = np.random.default_rng(0)
    chances = generator.random((rows, 8), dtype=np.float32) ** 3
    labels = [f"l{place}" for place in range(8)]
    index = Index(chances, labels)
    columns = [np.ascontiguousarray(chances[:, place]) for place in range(8)]
    query = "+l0 +l1 -l2 -l3 -l4"

    def plain() -> Any:
        a, b, c, d, e = (column.astype(np.float64) for column in columns[:5])
        product = a * b * (1 - c) * (1 - d) * (1 - e)
        best = np.argpartition(-product, TOP)[:TOP]
        return best[np.argsort(-product[best])], product.sum()

    ours = index.search(query, top=TOP)
    assert abs(ours.expected_hits / plain()[1] - 1) < 1e-6
    return lambda: index.search(query, top=TOP), plain


def polars_memory_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return a search in memory, by credibly and by polars."""
    pl: Any = importlib.import_module("polars")
    from credibly.retrieve import Index

    generator = np.random.default_rng(0)
    chances = generator.random((rows, 8), dtype=np.float32) ** 3
    labels = [f"l{place}" for place in range(8)]
    index = Index(chances, labels)
    frame = pl.DataFrame({label: chances[:, place] for place, label in enumerate(labels)})
    query, product = "+l0 +l1 -l2 -l3 -l4", _polars_product(labels[:2], labels[2:5])

    def plain() -> Any:
        scored = frame.select(p=product).with_row_index()
        return scored.top_k(TOP, by="p"), scored["p"].sum()

    assert abs(index.search(query, top=TOP).expected_hits / plain()[1] - 1) < 1e-6
    return lambda: index.search(query, top=TOP), plain


def polars_parquet_step(folder: Path, rows: int) -> tuple[Step, Step]:
    """Return a search of a file with truth and five conditions, by credibly and by polars."""
    pl: Any = importlib.import_module("polars")
    ours = parquet_step(folder, rows, 5)[0]
    names = [f"l{place:02d}" for place in range(5)]
    product = _polars_product([f"p:{name}" for name in names[:3]], [f"p:{x}" for x in names[3:]])
    hit = pl.all_horizontal(
        *(pl.col(f"y:{name}") == 1 for name in names[:3]),
        *(pl.col(f"y:{name}") == 0 for name in names[3:]),
    )
    shown = ["id", *(f"p:{name}" for name in names)]
    file = written_predictions(folder, rows, 80)

    def plain() -> Any:
        scored = pl.scan_parquet(file).select(*shown, p=product, hit=hit)
        return pl.collect_all(
            [scored.top_k(TOP, by="p"), scored.select(pl.col("p").sum(), pl.col("hit").sum())]
        )

    assert abs(ours().expected_hits / plain()[1]["p"][0] - 1) < 1e-9  # type: ignore[attr-defined]
    return ours, plain


def _polars_product(wanted: list[str], unwanted: list[str]) -> Any:
    pl: Any = importlib.import_module("polars")
    product = pl.lit(1.0)
    for name in wanted:
        product = product * pl.col(name).cast(pl.Float64)
    for name in unwanted:
        product = product * (1 - pl.col(name).cast(pl.Float64))
    return product


def parquet_step(folder: Path, rows: int, conditions: int, labels: int = 80) -> tuple[Step, Step]:
    """Return a search of a file with truth, by credibly and by two statements for DuckDB."""
    import duckdb

    from credibly.retrieve import search
    from credibly.retrieve.sql import database

    path = written_predictions(folder, rows, labels)
    names = [f"l{place:02d}" for place in range(conditions)]
    wanted, unwanted = names[: (conditions + 1) // 2], names[(conditions + 1) // 2 :]
    query = " ".join([f"+{name}" for name in wanted] + [f"-{name}" for name in unwanted])
    factors = [f'"p:{name}"::DOUBLE' for name in wanted]
    factors += [f'(1 - "p:{name}"::DOUBLE)' for name in unwanted]
    facts = [f'"y:{name}" = 1' for name in wanted] + [f'"y:{name}" = 0' for name in unwanted]
    table, shown = f"read_parquet('{path}')", ", ".join(f'"p:{name}"' for name in names)
    hit, product = " AND ".join(facts), " * ".join(factors)
    best = f"SELECT id, {product} AS p, {shown}, {hit} FROM {table} ORDER BY p DESC LIMIT {TOP}"
    totals = f"SELECT sum({product}), sum(CASE WHEN {hit} THEN 1 ELSE 0 END) FROM {table}"
    connection = duckdb.connect()
    for each in (connection, database()):  # work that two threads wait for is no cost of ours
        each.execute("SET threads = 1")

    def plain() -> Any:
        return connection.execute(best).fetchall(), connection.execute(totals).fetchall()

    ours, theirs = search(path, query, top=TOP), plain()
    assert abs(ours.expected_hits / theirs[1][0][0] - 1) < 1e-9
    assert ours.known_hits == theirs[1][0][1]
    return lambda: search(path, query, top=TOP), plain


def written_predictions(folder: Path, rows: int, labels: int) -> Path:
    """Return a file with truth, written block by block where it is not there yet."""
    from credibly.predictions import Predictions, Writer

    path = folder / f"{rows}-{labels}.parquet"
    if path.exists():
        return path
    generator = np.random.default_rng(0)
    block = min(100_000, 8_000_000 // labels)
    names = [f"l{place:02d}" for place in range(labels)]
    with Writer(path, names) as writer:
        for first in range(0, rows, block):
            size = min(block, rows - first)
            chances = generator.random((size, labels), dtype=np.float32) ** 3
            truth = generator.random((size, labels), dtype=np.float32) < chances
            ids = [f"row{first + place:08d}" for place in range(size)]
            values = {"probabilities": chances, "targets": truth.astype(np.int8), "ids": ids}
            writer.append(Predictions.from_arrays(labels=names, **values))
    return path


def top_labels_step(folder: Path, rows: int) -> tuple[Step, Step]:
    """Return a search of files with the most probable labels, by credibly and by DuckDB."""
    import duckdb

    from credibly.predictions import Predictions
    from credibly.retrieve import search

    path, labels, held = folder / f"top-{rows}.parquet", 100_000, 50
    generator = np.random.default_rng(0)
    numbers = np.sort(generator.integers(0, 2_000, (rows, held)), axis=1)
    numbers = (numbers + np.arange(held)) % labels  # distinct labels, some of them often
    Predictions.from_arrays(
        top=numbers,
        probabilities=generator.random((rows, held), dtype=np.float32) ** 3,
        labels=[f"l{place:05d}" for place in range(labels)],
    ).write(path)
    present = [f"coalesce(p[list_position(top, {place})], 0)::DOUBLE" for place in (500, 900, 1000)]
    product = f"{present[0]} * (1 - {present[1]}) * (1 - {present[2]})"
    table = f"read_parquet('{path}')"
    best = f"SELECT id, {product} AS p FROM {table} ORDER BY p DESC LIMIT {TOP}"
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    query = "+l00500 -l00900 -l01000"

    def plain() -> Any:
        total = connection.execute(f"SELECT sum({product}) FROM {table}").fetchall()
        return connection.execute(best).fetchall(), total

    assert abs(search(path, query, top=TOP).expected_hits / plain()[1][0][0] - 1) < 1e-6
    return lambda: search(path, query, top=TOP), plain


def joint_step(rows: int, _: str) -> tuple[Step, Step]:
    """Return a search in memory by a joint model, and with independent labels."""
    from benchmarks import joint_search
    from credibly.retrieve import Index, Joint

    names = [f"l{place:02d}" for place in range(joint_search.LABELS)]
    joint = Joint(3).fit(*joint_search.drawn(2000, 1), names)
    index = Index(joint_search.drawn(rows, 2)[0].astype(np.float32), names)
    query = joint_search.QUERY
    return (
        lambda: index.search(query, top=TOP, joint=joint),
        lambda: index.search(query, top=TOP),
    )


def evaluate_step(folder: Path, rows: int, labels: int) -> tuple[Step, Step]:
    """Return the evaluation of a file, by credibly and two of its numbers by scikit-learn."""
    import pyarrow.parquet as pq
    from sklearn import metrics as peers

    import credibly as cr

    path = written_predictions(folder, rows, labels)
    score: Any = peers.average_precision_score

    def matrix(table: Any, prefix: str) -> Any:
        return np.stack([table[f"{prefix}:l{place:02d}"] for place in range(labels)], axis=1)

    def plain() -> Any:
        table = pq.read_table(path)
        chances, truth = matrix(table, "p"), matrix(table, "y")
        precisions = score(truth, chances, average=None)
        return float(np.mean(precisions)), float(((chances - truth) ** 2).mean())

    ours, theirs = cr.evaluate(path).numbers, plain()
    assert abs(ours["mAP@y"] - theirs[0]) < 1e-5
    assert abs(ours["Brier"] - theirs[1]) < 1e-5
    return lambda: cr.evaluate(path), plain
