"""Spark reads the files; the statements are those of every engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from credibly.checks import InputError
from credibly.engines import file_address, is_remote, spark_session
from credibly.predictions import Dataset, Schema
from credibly.retrieve.files import Engine, Row, Run, by_columns
from credibly.retrieve.sql import Source

_VIEW = "credibly_predictions"
_ARROW = {
    "string": "string",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "void": "null",
}


def spark_engine(
    path: str | os.PathLike[str], session: Any = None, *, partial: bool = False
) -> Engine:
    """Return the predictions at ``path``, opened by Spark."""
    spark = spark_session() if session is None else session
    # Label names may differ by case alone; Spark takes them for one unless told otherwise.
    spark.conf.set("spark.sql.caseSensitive", "true")
    if is_remote(path):
        frame = spark.read.parquet(str(path))
        frame.createOrReplaceTempView(_VIEW)
        schema = Schema.from_arrow(_arrow_schema(frame.schema), None, f"{path}: ")
        return Engine(str(path), schema.labels, [Source(_VIEW, schema)], "`", _runner(spark, path))
    dataset = Dataset(path, partial=partial)
    dataset.check_ids(trust_writer=True)
    sources = []
    for place, (schema, files) in enumerate(by_columns(dataset)):
        frame = spark.read.parquet(*(file_address(str(file)) for file in files))
        frame.createOrReplaceTempView(f"{_VIEW}_{place}")
        sources.append(Source(f"{_VIEW}_{place}", schema))

    def add_file(name: str, file: Path) -> None:
        spark.read.parquet(file_address(str(file))).createOrReplaceTempView(name)

    run = _runner(spark, path)
    return Engine(str(path), dataset.labels, sources, "`", run, dataset, add_file=add_file)


def _runner(spark: Any, path: str | os.PathLike[str]) -> Run:
    def run(statement: str) -> list[Row]:
        try:
            return [tuple(row) for row in spark.sql(statement).collect()]
        except Exception as error:  # py4j and Spark raise types of their own
            raise InputError(
                f"{path} could not be searched; {str(error).splitlines()[0]}"
            ) from error

    return run


def _arrow_schema(struct: Any) -> Any:
    """Return Spark's columns as Arrow's; types that predictions never have become lists."""
    import pyarrow as pa

    other = pa.list_(pa.null())
    kinds = {field.name: field.dataType.simpleString() for field in struct.fields}
    return pa.schema(
        [
            (name, getattr(pa, _ARROW[kind])() if kind in _ARROW else other)
            for name, kind in kinds.items()
        ]
    )
