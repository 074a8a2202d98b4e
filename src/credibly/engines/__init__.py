"""Who does the work over the pieces of a predictions dataset: this machine, or a Spark cluster.

    engine = engines.open_engine("spark")          # or "duckdb": this machine
    engine.tally(dataset, tally)                   # one pass; sums of pieces are added
    engine.run(dataset, work)                      # work(piece, reader) once per piece
    engine.ranked_totals(dataset, plan)            # exact average precision: sorted by label

A ``Tally`` is what a pass adds up: arrays in, arrays out, and the sum of two tallies is the tally
of both. Everything that is computed past one machine is written once, as a tally, and runs on any
engine. Workers read the files themselves, with the reader that checks every value; they must see
them under the same path.
"""

from credibly.engines.base import Engine, Here, Tally, open_engine
from credibly.engines.session import file_address, is_remote, spark_session
from credibly.engines.spark import SparkEngine

__all__ = [
    "Engine",
    "Here",
    "SparkEngine",
    "Tally",
    "file_address",
    "is_remote",
    "open_engine",
    "spark_session",
]
