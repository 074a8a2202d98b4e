"""Where work over the shards of a predictions dataset runs: on this machine, or on Spark.

    cr.evaluate("shards/", executor="spark")            # or "local", or Spark(session)

Work is written once, as an accumulator (``update``, ``state``, ``merge``), and runs on any
executor. Workers read the files themselves, with the reader that checks
every value; they must see them under the same path.
"""

from credibly.checks import choice
from credibly.executors.executor import Executor
from credibly.executors.spark import Spark

__all__ = ["Executor", "Spark"]


def open_executor(executor: str | Executor = "local") -> Executor:
    """Return an executor by its name on the command line; an executor as it is.

    Args:
        executor: ``"local"``, ``"spark"`` (a session is started), or an executor.

    Example:
        >>> open_executor("local").one_file
        True
    """
    if isinstance(executor, Executor):
        return executor
    kinds = {"local": Executor, "spark": Spark}
    return kinds[choice("executor", executor, tuple(kinds))]()
