"""A Spark session, and how Spark is told where a file is."""

from __future__ import annotations

import os
import sys
from typing import Any

from credibly.checks import InputError


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` is an address (``s3a://…``, ``hdfs://…``) that only Spark reads.

    Example:
        >>> is_remote("s3a://bucket/parts"), is_remote("parts")
        (True, False)
    """
    return "://" in str(path)


def file_address(file: str) -> str:
    """Return the address of a file of this machine, for ``spark.read``.

    Example:
        >>> file_address("/data/part [1].parquet")
        'file:///data/part \\\\[1\\\\].parquet'
    """
    # A path is a glob to Spark; a backslash takes the meaning of its characters away.
    plain = "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in os.path.abspath(file))
    return f"file://{plain}"


def spark_session() -> Any:
    """Return the Spark session of this process, or start one.

    ``PYSPARK_SUBMIT_ARGS`` or ``SPARK_CONF_DIR`` point to a cluster; otherwise it runs on this
    machine. Workers use the Python of ``PYSPARK_PYTHON``, by default the one that runs this.

    Raises:
        InputError: if PySpark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "`engine='spark'` must find PySpark; it is not installed. "
            "Run `pip install 'credibly[spark]'`, or use `engine='duckdb'`."
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        builder = SparkSession.builder.appName("credibly")
        return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except Exception as error:  # py4j and Spark raise types of their own, Java's absence included
        raise InputError(
            f"Spark must start; {str(error).splitlines()[0]} It needs Java 17 or newer "
            "(`java -version`); `engine='duckdb'` needs none."
        ) from error
