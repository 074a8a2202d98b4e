"""A worker that is lost in the middle changes nothing. Comes last: the worker stays dead."""

import os
import threading
import time

import numpy as np

from credibly import evaluate
from credibly.engines import Here, SparkEngine
from credibly.predictions import Dataset
from credibly.workflows.tallies import EvaluationTally


def test_the_tasks_of_a_lost_worker_are_done_again(cluster, parts, tmp_path):
    processes, session = cluster

    class Slow(EvaluationTally):  # of this function, so that workers need not import this file
        def update(self, batch, first_row):
            (tmp_path / f"{first_row}-{os.getpid()}").touch()
            time.sleep(1.5)
            super().update(batch, first_row)

    def kill_when_both_work():
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.05)
        processes.kill_worker(0)

    dataset = Dataset(parts)
    killer = threading.Thread(target=kill_when_both_work)
    killer.start()
    spark = SparkEngine(session).tally(dataset, Slow(len(dataset.labels)))
    killer.join()
    local = Here().tally(dataset, EvaluationTally(len(dataset.labels)))
    begun = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert len(begun) > len(set(begun))  # some piece was begun twice
    for name, expected in local.state().items():
        np.testing.assert_allclose(spark.state()[name], expected, rtol=1e-12)
    one_left = evaluate(parts, engine="spark", session=session)
    assert abs(one_left.numbers["NLL"] / evaluate(parts).numbers["NLL"] - 1) < 1e-9
