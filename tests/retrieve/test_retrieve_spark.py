"""Spark in local mode gives what DuckDB gives: the same ids, the same bits."""

import os
import shutil
import sys

import numpy as np
import pytest
from test_retrieve_engines import LABELS, QUERIES, table, write
from test_retrieve_queries import quoted

from credibly import InputError
from credibly.executors import Spark
from credibly.retrieve import Joint, search

pyspark = pytest.importorskip(
    "pyspark", reason="PySpark is not installed: pip install 'credibly[spark]'"
)
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("CREDIBLY_SPARK") != "1",
        reason="Spark takes long to start: `make test-spark` (CREDIBLY_SPARK=1) runs these",
    ),
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ,
        reason="Spark needs Java 17 or newer, and no `java` is on this machine",
    ),
]


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("credibly tests")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", 2)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    ids, chances, truth = data
    path = tmp_path_factory.mktemp("parts [of one]")
    for start in range(0, len(ids), 300):
        rows = slice(start, start + 300)
        write(path / f"part-{start:04d}.parquet", ids[rows], chances[rows], truth[rows])
    return path


@pytest.fixture(scope="module")
def together(data):
    return Joint().fit(data[1], data[2], LABELS)


@pytest.mark.parametrize("joint", [False, True], ids=["independent", "joint"])
@pytest.mark.parametrize("query", QUERIES)
def test_spark_and_duckdb_give_the_same_ids_and_bits(query, joint, together, folder, session):
    model = together if joint else None
    local = search(folder, query, top=50, joint=model)
    spark = search(folder, query, top=50, joint=model, executor=Spark(session))
    assert spark.hits == local.hits
    assert (spark.rows, spark.known_rows, spark.known_hits) == (
        local.rows,
        local.known_rows,
        local.known_hits,
    )
    assert spark.expected_hits == pytest.approx(local.expected_hits, rel=1e-12)


def test_no_label_name_reaches_spark_as_code(session, tmp_path):
    labels = ["a`b", "x; DROP TABLE y", 'q"q', "Dog", "dog", "select", "50%", "猫", "it's"]
    ids, chances, truth = table(40, labels)
    write(tmp_path / "p.parquet", ids, chances, truth, labels)
    either = " | ".join(map(quoted, labels[:3]))
    query = f"+Dog -dog ({either}) & ({' | '.join(map(quoted, labels[5:]))})"
    local = search(tmp_path / "p.parquet", query, top=40)
    spark = search(tmp_path / "p.parquet", query, top=40, executor=Spark(session))
    assert spark.hits == local.hits


def test_a_probability_that_is_none_is_named(session, tmp_path):
    ids, chances, _ = table(50)
    chances[7, 1] = np.nan
    write(tmp_path / "p.parquet", ids, chances)
    with pytest.raises(InputError, match="row 7, column 'p:apple'"):
        search(tmp_path / "p.parquet", "+apple", executor=Spark(session))
