"""Choose where the work over the shards of a predictions dataset runs: this machine or Spark.

    cr.evaluate("shards/", executor="spark")            # or "local", or Spark(session)

A computation is written once, as an accumulator (``update``, ``state``, ``merge``), and runs on
any executor. Workers read the files themselves, with the reader that checks every value. They must
see the files under the same path as this process.
"""

from credibly.checks import choice
from credibly.executors.executor import Executor
from credibly.executors.spark import Spark

__all__ = ["Spark"]


def open_executor(executor: str | Executor = "local") -> Executor:
    """Return the executor with this name; return an executor unchanged.

    Args:
        executor: ``"local"``, ``"spark"`` (which starts a session), or an executor.

    Example:
        >>> open_executor("local").local
        True
    """
    if isinstance(executor, Executor):
        return executor
    kinds = {"local": Executor, "spark": Spark}
    return kinds[choice("executor", executor, tuple(kinds))]()
