"""A cluster for all tests of this folder, and predictions in several files."""

import os
import shutil

import pytest
from spark_rows import write_parts


def skip_without_spark() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'credibly[spark]'")
    if os.environ.get("CREDIBLY_SPARK") != "1":
        pytest.skip("Spark takes long to start: `make test-spark` (CREDIBLY_SPARK=1) runs these")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and no `java` is on this machine")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    skip_without_spark()
    from spark_cluster import spark_on_a_cluster

    with spark_on_a_cluster(tmp_path_factory.mktemp("cluster")) as both:
        yield both


@pytest.fixture(scope="session")
def session(cluster):
    return cluster[1]


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("parts"))
