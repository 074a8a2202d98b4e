"""What is decided before training: batches per epoch, folds, and which losses a model takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import credibly as cr
from credibly import InputError
from credibly.data import Data
from credibly.train import Callback, fit, recipe, resolve


class Counted(Callback):
    """Counts the updates that come, and keeps the number that was announced."""

    def __init__(self):
        self.updates, self.totals = 0, set()

    def on_update(self, done, total):
        self.updates, self.totals = done, self.totals | {total}


@pytest.mark.parametrize(
    ("rows", "batch"), [(30, 7), (28, 7), (29, 7), (12, 100), (12, 12), (13, 12)]
)
def test_an_epoch_has_the_fewest_batches_that_hold_all_rows(rows, batch, tmp_path):
    rng = np.random.default_rng(0)
    split = np.repeat([0, 1, 2], [rows, 6, 6])
    targets = rng.integers(0, 2, (len(split), 2)).astype(float)
    data = Data(["a", "b"], targets, features=rng.normal(size=(len(split), 3)), split=split)
    seen = Counted()
    settings = recipe(model="mlp", epochs=2, batch_size=batch, hidden=4)
    fit(data, settings, folder=tmp_path / "run", callback=seen)
    assert seen.updates == 2 * math.ceil(rows / batch)
    assert seen.totals == {seen.updates}


def texts(trained, held_out, tested, *, drawn):
    """Texts of which some rows are to train on, some held out, some to test."""
    count = trained + held_out + tested
    split = np.repeat([0, 2, 1], [trained, held_out, tested])
    words = [["red dog"], ["blue cat"]]
    targets = np.tile([[1.0, 0.0], [0.0, 1.0]], (count, 1))[:count]
    matrix = [words[row % 2] for row in range(count)]
    return Data(["dog", "cat"], targets, texts=matrix, split=split, drawn=drawn)


@pytest.mark.parametrize(
    ("trained", "held_out", "tested", "folds"),
    [(16, 4, 0, 3), (15, 4, 1, 0), (15, 4, 40, 0), (20, 0, 3, 3), (0, 20, 0, 3)],
)
def test_texts_are_folded_from_twenty_rows_on_that_are_not_tested(trained, held_out, tested, folds):
    data = texts(trained, held_out, tested, drawn=True)
    assert resolve(recipe(model="tfidf"), data).folds == folds


def test_folds_are_refused_where_rows_are_held_out_by_name_or_too_few():
    with pytest.raises(InputError, match="has held-out rows, which `folds` would replace"):
        resolve(recipe(model="tfidf", folds=3), texts(20, 5, 5, drawn=False))
    named = resolve(recipe(model="tfidf"), texts(20, 5, 5, drawn=False))
    assert named.folds == 0
    # Without held-out rows, folds are possible; test rows do not count.
    assert resolve(recipe(model="tfidf", folds=3), texts(20, 0, 5, drawn=False)).folds == 3
    with pytest.raises(InputError, match="at most half the number of rows to train on, 9; got 5"):
        resolve(recipe(model="tfidf", folds=5), texts(9, 0, 30, drawn=False))


RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3))
ONE_EACH = np.eye(3)[RNG.integers(0, 3, 60)]
MANY = RNG.integers(0, 2, (60, 3)).astype(float)
UNKNOWN = np.where(RNG.random((60, 3)) < 0.1, -1.0, ONE_EACH)


@pytest.mark.parametrize(
    ("loss", "targets"), [("asl", MANY), ("softmax", MANY), ("softmax", UNKNOWN), ("asl", ONE_EACH)]
)
def test_trees_refuse_losses_that_are_not_their_log_loss(loss, targets):
    with pytest.raises(InputError, match="`model` forest is trained by log loss: `loss` bce, or"):
        cr.CredibleClassifier(loss, model="forest").fit(FEATURES, targets)


@pytest.mark.parametrize(("loss", "targets"), [("bce", MANY), ("softmax", ONE_EACH)])
def test_trees_take_their_log_loss(loss, targets):
    fitted = cr.CredibleClassifier(loss, model="forest").fit(FEATURES, targets)
    sums = np.asarray(fitted.predict_proba(FEATURES)).sum(axis=1)
    assert (np.abs(sums - 1).max() < 0.01) == (loss == "softmax")
