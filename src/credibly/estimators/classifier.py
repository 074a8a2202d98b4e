"""A scikit-learn classifier on features whose probabilities can be acted on."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from credibly import checks
from credibly.targets import UNKNOWN, Coding, decode
from credibly.types import Array

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from credibly.train import FittedModel


MODELS = ("auto", "linear", "mlp", "forest", "boosting")


class CredibleClassifier(ClassifierMixin, BaseEstimator):
    """Classifier for zero, one or many labels per row, with calibrated probabilities.

    ``y`` may be class labels (n,), or a matrix (n, L) of 0, 1, −1 or NaN (unknown) and values
    between 0 and 1 (soft). With class labels exactly one is present, and rows of ``predict_proba``
    sum to one; with a matrix each column is a probability of its own. The matrix needs at least two
    columns, since scikit-learn reads one column as class labels.

    ``auto`` compares a linear model, a network, a forest and gradient boosting on rows they were
    not trained on, and keeps the best or a weighted sum; for sparse ``X``, other losses than
    ``bce`` and ``softmax``, or fewer than four rows per fold it is ``linear``.

    The probabilities are calibrated on rows that the scores were not trained on. All but ``mlp``
    are cross-fitted: ``1/held_out`` models, each scoring the rows it has not seen, choose and fit
    the calibrator; the final model has all rows. ``mlp`` sets ``held_out`` of the rows aside, which
    choose the epoch and fit the calibrator.

    Args:
        loss: name of a loss, as on the command line: ``bce``, ``asl``, ``spa+lpr``, ``softmax``.
        model: ``auto``, ``linear`` (trained to the optimum by L-BFGS), ``mlp``, ``forest`` or
            ``boosting``.
        l2: strength of the penalty ½‖weights‖² against the sum of the losses of all known
            entries; scikit-learn's 1/C for ``bce``. For ``linear``. None: rows left out choose.
        hidden, dropout, epochs, learning_rate, batch_size: of ``mlp``.
        calibrate: a calibrator's name, ``none``, or ``auto`` for none, affine or per-label, by
            cross-validated log loss.
        held_out: share of the rows that the calibrator is fitted on.
        budget: of ``auto``, time for the models tried, estimated from the size of the data.
        coding: how to read a matrix ``y`` of only −1 and +1: ``"signed"`` (−1 is absent, 0 unknown)
            or ``"unknown"`` (−1 is unknown); see ``credibly.targets``. Needed in that case only.
        random_state: seed of everything random.

    Attributes:
        classes_: class labels, or column numbers.
        held_out_probabilities_: of the rows the calibrator was fitted on; label budgets are fitted
            on them too.
        candidates_: what was compared, one dict for each candidate with its log loss on rows it
            was not trained on; empty where nothing was.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = CredibleClassifier().fit(X, y)
        >>> classifier.predict_proba(X[:1]).round(2).shape, bool(classifier.score(X, y) > 0.9)
        ((1, 3), True)
        >>> classifier.predict_sets(X, average_size=1.2).shape
        (150, 3)
    """

    def __init__(
        self,
        loss: str = "bce",
        *,
        model: str = "auto",
        l2: float | None = None,
        hidden: int = 256,
        dropout: float = 0.5,
        epochs: int = 40,
        learning_rate: float = 1e-3,
        batch_size: int | None = None,
        calibrate: str = "auto",
        held_out: float = 0.2,
        budget: str = "60s",
        coding: Coding | None = None,
        random_state: object = 0,
    ) -> None:
        self.loss = loss
        self.model = model
        self.l2 = l2
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.calibrate = calibrate
        self.held_out = held_out
        self.budget = budget
        self.coding: Coding | None = coding
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> CredibleClassifier:
        """Train and calibrate. ``X`` is (n, features): array, data frame or sparse matrix.

        NaN in a dense ``X`` is a missing value.
        """
        from credibly.train import fit_matrix

        X, y = validate_data(
            self,
            X,
            _without_missing(y),
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            multi_output=True,
            ensure_all_finite=_finite(X),
        )
        targets = self._targets(y)
        self.fitted_: FittedModel = fit_matrix(X, targets, self._seed(), **self._recipe())
        self.candidates_ = self.fitted_.candidates
        self.held_out_probabilities_ = self._normalised(self.fitted_.held_out)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each label, (n, L)."""
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            reset=False,
            ensure_all_finite=_finite(X),
        )
        return self._normalised(self.fitted_.probabilities(X))

    def predict(self, X: object) -> Array:
        """Return the most probable class; with a matrix ``y``, 1 for labels above ½ and 0 else."""
        estimates = self.predict_proba(X)
        if self.multi_label_:
            return (estimates > 0.5).astype(self.target_dtype_)
        return self.classes_[estimates.argmax(axis=1)]

    def predict_sets(self, X: Any, average_size: float, *, guarantee: Any = None) -> Array:
        """Return label sets, a bool matrix (n, L), with ``average_size`` labels per row on average.

        The threshold comes from held-out rows; ``guarantee="expected"`` makes the budget hold in
        expectation for exchangeable rows (see ``cr.decide.AverageSize``).
        """
        from credibly import decide

        estimates = self.predict_proba(X)
        budget = decide.AverageSize(average_size, guarantee=guarantee)
        return budget.fit(self.held_out_probabilities_).predict(estimates)

    # The pieces ------------------------------------------------------------------------------

    def _targets(self, y: Any) -> Array:
        """Return (n, L) targets; set ``classes_``, ``multi_label_`` and ``target_dtype_``."""
        y = y.toarray() if sparse.issparse(y) else np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected.",
                DataConversionWarning,
                stacklevel=3,
            )
            y = y[:, 0]
        self.multi_label_ = y.ndim == 2
        if self.multi_label_:
            targets = decode(y, coding=self.coding, name="y")
            self.classes_, self.target_dtype_ = np.arange(y.shape[1]), y.dtype
            if targets.dtype.kind == "f":  # soft: predictions are whole
                self.target_dtype_ = np.dtype(int)
            return targets.astype(np.float64)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        return np.eye(len(self.classes_))[index]

    def _normalised(self, estimates: Array) -> Array:
        """Scale each row to sum 1 where targets are class labels: exactly one label is present."""
        if self.multi_label_:
            return estimates
        total = estimates.sum(axis=1, keepdims=True)
        even = np.full_like(estimates, 1 / estimates.shape[1])
        return np.where(total > 0, estimates / np.where(total > 0, total, 1), even)

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _recipe(self) -> dict[str, Any]:
        checks.choice("model", self.model, MODELS)
        checks.fraction("held_out", self.held_out, low_open=True, high_open=True)
        if self.l2 is not None:
            checks.at_least("l2", self.l2, 0)
        names = ("loss", "model", "l2", "hidden", "dropout", "epochs", "learning_rate")
        names = (*names, "batch_size", "calibrate", "held_out", "budget")
        return {name: getattr(self, name) for name in names}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def _finite(rows: object) -> bool | str:
    """Return what scikit-learn must check: NaN is a missing feature, but not of sparse rows."""
    return True if sparse.issparse(rows) else "allow-nan"


def _without_missing(y: Any) -> Any:
    """Return a matrix with −1 for NaN, since scikit-learn refuses NaN; all else as it came."""
    if sparse.issparse(y):
        return y
    array = np.asarray(y)
    if array.ndim != 2 or array.dtype.kind != "f" or not np.isnan(array).any():
        return y
    return np.where(np.isnan(array), array.dtype.type(UNKNOWN), array)
