"""Runs in name alone, for tests of what is predicted with them."""

from __future__ import annotations

import threading
import time

import numpy as np

from credibly import Pipeline
from credibly.app.server import create_app


class Run:
    """A run in name alone: it keeps what it was given, and answers with the file's first rows."""

    def __init__(self, rows, kind="images", shape=(1, 16, 16), wait=0.0):
        self.rows, self.wait = rows, wait
        self.data = {"kind": kind, "shape": list(shape)}
        self.labels, self.pipeline, self.preparation = rows.labels, Pipeline(), None
        self.feature_names, self.keeps_top_labels = None, False
        self.seen, self.now, self.most = [], 0, 0
        self.lock = threading.Lock()

    def predict(self, array):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.seen.append(array.shape)
        time.sleep(self.wait)
        with self.lock:
            self.now -= 1
        return self.rows[np.arange(len(array))]


def app_with(path, run, monkeypatch):
    """Return the app that serves a file and predicts with such a run."""
    monkeypatch.setattr("credibly.train.load", lambda folder: run)
    return create_app([path], run="run", hosts=["testserver"])
