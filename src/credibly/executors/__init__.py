"""Where work over the shards of a predictions dataset runs: on this machine, or on Spark.

    executor = open_executor("spark")                   # or "local", or Spark(session)
    executor.accumulate(dataset, accumulator, feed)     # one pass; states of shards are merged
    executor.run(dataset, work)                         # work(shard, reader) once per shard
    executor.label_totals(dataset, plan)                # exact average precision: sorted by label

What is computed past one machine is written once, as an accumulator (``update``, ``state``,
``merge``), and runs on any executor. Workers read the files themselves, with the reader that checks
every value; they must see them under the same path.
"""

from credibly.executors.executor import Executor, Local, open_executor
from credibly.executors.spark import Spark, file_address, is_remote, spark_session

__all__ = [
    "Executor",
    "Local",
    "Spark",
    "file_address",
    "is_remote",
    "open_executor",
    "spark_session",
]
