"""One of two processes that measure together: python metric_process.py RANK RENDEZVOUS OUT."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from metric_cases import make_case

from credibly.metrics import streaming

SPLITS = {"unequal": [(0, 13), (13, 60)], "one rank has nothing": [(0, 0), (0, 60)]}


def make_metrics(num_labels):
    return {
        "ace": streaming.CalibrationError(num_labels),
        # A mean over processes in place of the sum would drop bins below the count.
        "counted": streaming.CalibrationError(num_labels, min_count=15),
        "mce": streaming.CalibrationError(num_labels, kind="mce", average="macro", bins=7),
        "log_loss": streaming.LogLoss(num_labels),
        "brier": streaming.Brier(num_labels, average=None),
        "precision": streaming.AveragePrecision(num_labels, average=None),
    }


def feed(metrics, probabilities, targets, batch):
    for begin in range(0, len(targets), batch):
        rows = slice(begin, begin + batch)
        for metric in metrics.values():
            metric.update(probabilities[rows], targets[rows])


def results(metrics):
    values = {name: metric.compute() for name, metric in metrics.items()}
    return {name: torch.nan_to_num(value, nan=-1).tolist() for name, value in values.items()}


def main(rank, rendezvous, out):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    probabilities, targets = (torch.from_numpy(array) for array in make_case(seed=11))
    answers = {}
    for name, parts in SPLITS.items():
        begin, end = parts[rank]
        metrics = make_metrics(targets.shape[1])
        # The ranks differ in how many updates they make, too.
        feed(metrics, probabilities[begin:end], targets[begin:end], batch=5 + 6 * rank)
        answers[name] = results(metrics)
    with open(out, "w") as file:
        json.dump(answers, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
