"""Spark reads the parts; the statements are those of every engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from credibly.checks import InputError
from credibly.retrieve._parts import Parts, is_remote, open_parts, parts_of

if TYPE_CHECKING:
    from credibly.retrieve._engines import Run

_VIEW = "credibly_predictions"


def opened(path: str | os.PathLike[str], session: Any = None) -> tuple[Parts, str, Run]:
    """What is at ``path``, its name in SQL, and a function that runs statements."""
    spark = _session() if session is None else session
    local = None if is_remote(path) else open_parts(path)
    # Label names may differ by case alone; Spark takes them for one unless told.
    spark.conf.set("spark.sql.caseSensitive", "true")
    if local is None:
        frame = spark.read.parquet(str(path))
    else:
        frame = spark.read.parquet(*(_address(file) for file in local.files))
    parts = parts_of(str(path), (str(path),), frame.columns) if local is None else local
    frame.createOrReplaceTempView(_VIEW)

    def run(statement: str) -> list[Any]:
        return [tuple(row) for row in spark.sql(statement).collect()]

    return parts, _VIEW, run


def _address(file: str) -> str:
    # A path is a glob to Spark as well; a backslash takes the meaning of its characters away.
    plain = "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in os.path.abspath(file))
    return f"file://{plain}"


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            "`engine='spark'` must find PySpark; it is not installed. "
            "Run `pip install 'credibly[spark]'`, or use `engine='duckdb'`."
        ) from error
    try:
        # PYSPARK_SUBMIT_ARGS or SPARK_CONF_DIR point to a cluster; otherwise this machine.
        builder = SparkSession.builder.appName("credibly search")
        return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except Exception as error:  # py4j and Spark raise types of their own, Java's absence included
        raise InputError(
            f"Spark must start; {str(error).splitlines()[0]} It needs Java 17 or newer "
            "(`java -version`); `engine='duckdb'` needs none."
        ) from error
