"""A worker that is lost in the middle changes nothing. Comes last: the worker stays dead."""

import os
import threading
import time

import numpy as np

from credibly import evaluate
from credibly.executors import Executor, Spark
from credibly.metrics import Summary
from credibly.predictions import Dataset


def test_the_tasks_of_a_lost_worker_are_done_again(cluster, parts, tmp_path):
    processes, session = cluster

    def feed(accumulator, batch, first_row):
        accumulator.update(batch.probabilities, batch.targets)

    def slow(accumulator, batch, first_row):
        (tmp_path / f"{first_row}-{os.getpid()}").touch()
        time.sleep(1.5)
        feed(accumulator, batch, first_row)

    def kill_when_both_work():
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.05)
        processes.kill_worker(0)

    dataset = Dataset(parts)
    killer = threading.Thread(target=kill_when_both_work)
    killer.start()
    count = len(dataset.labels)
    spark = Spark(session).accumulate(dataset, Summary(count, zero=True), slow)
    killer.join()
    local = Executor().accumulate(dataset, Summary(count, zero=True), feed)
    begun = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert len(begun) > len(set(begun))  # some shard was begun twice
    for name, expected in local.state().items():
        np.testing.assert_allclose(spark.state()[name], expected, rtol=1e-12)
    one_left = evaluate(parts, executor=Spark(session))
    assert abs(one_left.numbers["NLL"] / evaluate(parts).numbers["NLL"] - 1) < 1e-9
