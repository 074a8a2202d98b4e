"""scikit-learn estimators with calibrated probabilities.

CredibleClassifier()                    trains its own model on features
CalibratedMultiLabel(estimator)         calibrates any classifier with scikit-learn's interface
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from scipy import sparse
from scipy.special import expit, logit
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.multioutput import MultiOutputClassifier
from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils import (
    assert_all_finite,
    check_random_state,
    column_or_1d,
    get_tags,
    indexable,
)
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from credibly import checks
from credibly.arrays import in_order, is_data_frame, label_columns
from credibly.calibrate.auto import fit_by_name
from credibly.data import StratifiedFolds, from_arrays
from credibly.data.splits import as_often_as_weighted
from credibly.targets import UNKNOWN, Coding, Targets, as_decoded, decode
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from credibly.calibrate import Calibrator
    from credibly.predictions import Predictions
    from credibly.train import Recipe, Run

Rows: TypeAlias = Any
"""Features as scikit-learn takes them: an array, a data frame or a sparse matrix."""

Labels: TypeAlias = Any
"""Targets as scikit-learn takes them: class labels, or a matrix of any of these types."""

Estimator: TypeAlias = Any
"""An object with scikit-learn's interface, which has no types."""

LARGEST = 3e38
MODELS = ("auto", "linear", "mlp", "forest", "boosting")

RESPONSES = ("predict_proba", "decision_function")


class _Decides(ClassifierMixin, BaseEstimator, ABC):
    """Classes and label sets from calibrated probabilities."""

    multi_label_: bool
    classes_: Array
    target_dtype_: np.dtype[Any]
    held_out_probabilities_: Array
    weighted_: bool = False

    coding: Coding | None

    @abstractmethod
    def predict_proba(self, X: Rows) -> Array:
        """Return the calibrated probability of each label, (n, L)."""

    def _decoded(self, y: Labels, names: Any) -> Array:
        """Return (n, L) targets; set ``classes_``, ``multi_label_`` and ``target_dtype_``.

        ``names`` are the columns of a data frame, or None for an array.
        """
        array = _dense(y)
        self.multi_label_ = array.ndim == 2 and (array.shape[1] > 1 or names is not None)
        if not self.multi_label_:
            array = column_or_1d(array, warn=True)
            assert_all_finite(array, input_name="y")
            check_classification_targets(array)
            self.classes_, index = np.unique(array, return_inverse=True)
            return np.eye(len(self.classes_), dtype=np.int8)[index]
        targets = decode(array, coding=self.coding, name="y")
        self.classes_ = np.arange(array.shape[1]) if names is None else np.asarray(names)
        # Predictions are whole numbers, even for soft targets.
        self.target_dtype_ = np.dtype(int) if targets.dtype.kind == "f" else array.dtype
        return targets

    def predict(self, X: Rows) -> Array:
        """Return the most probable class; with a matrix ``y``, 1 for labels above ½, else 0."""
        estimates = self.predict_proba(X)
        if self.multi_label_:
            return (estimates > 0.5).astype(self.target_dtype_)
        return self.classes_[estimates.argmax(axis=1)]

    def predict_sets(self, X: Rows, average_size: float, *, guarantee: Any = None) -> Array:
        """Return label sets, a bool matrix (n, L), with ``average_size`` labels per row on average.

        The threshold is fitted on the rows of the calibrator. With ``guarantee="expected"``, the
        budget holds in expectation for exchangeable rows (see ``cr.decide.AverageSize``).
        """
        from credibly import decide

        estimates = self.predict_proba(X)
        if self.weighted_ and guarantee is not None:
            raise checks.InputError(
                "`guarantee` holds for rows of equal weight; got it after `fit` with "
                "`sample_weight`. Leave one of them out."
            )
        budget = decide.AverageSize(average_size, guarantee=guarantee)
        return budget.fit(self.held_out_probabilities_).predict(estimates)

    def _normalised(self, estimates: Array) -> Array:
        """Scale each row to sum 1 if targets are class labels, of which exactly one is present."""
        if self.multi_label_:
            return estimates
        total = estimates.sum(axis=1, keepdims=True)
        even = 1 / estimates.shape[1]
        return np.where(total > 0, estimates / np.where(total > 0, total, 1), even)


class CalibratedMultiLabel(MetaEstimatorMixin, _Decides):
    """Calibrate a classifier for zero, one or many labels per row.

    The estimator is fitted ``cv`` times. Each copy scores the rows that it was not fitted on, and a
    calibrator is fitted on these out-of-fold scores. Then the estimator is fitted on all rows. If
    your estimator is already fitted, pass ``FrozenEstimator(estimator)``. It is not fitted again,
    and ``fit`` uses all rows for calibration. Pass rows that it was not trained on.

    Class weights (``class_weight="balanced"`` in the estimator) distort probabilities. The
    calibrator corrects this, because it is fitted without these weights.

    ``y`` is (n, L): an array, a data frame, whose column names become the labels, or a sparse
    matrix. Unknown labels (−1 or NaN) are allowed only with a ``FrozenEstimator``. ``y`` may also
    be class labels (n,). Then exactly one class is present, and probabilities sum to one.

    Args:
        estimator: a classifier, or a pipeline that ends in one: forests, one-vs-rest, chains,
            …. An estimator that supports only one target (by its tags) is fitted once per
            label. If a label is present in all rows of a fold, or in none, its rate is used.
            None: logistic regression.
        method: name of a calibrator, or ``"auto"``: the simplest calibrator that no other beats
            by more than one standard error of the out-of-fold log loss
            (``cr.calibrate.choose``).
        cv: a splitter, or a number of folds of ``cr.data.StratifiedFolds``.
        response: ``"predict_proba"``, or ``"decision_function"`` for estimators without
            probabilities, whose decision values are used as log-odds.
        coding: meaning of −1 in a matrix ``y`` of only −1 and +1; see ``credibly.targets``.

    Attributes:
        estimator_: the fitted estimator.
        calibrator_: the fitted calibrator of log-odds.
        classes_: names of the labels (data frames), column numbers, or class labels.
        held_out_probabilities_: calibrated probabilities of the rows that the calibrator was
            fitted on, each repeated by its weight.

    Example:
        >>> from sklearn.datasets import make_multilabel_classification
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> X, Y = make_multilabel_classification(300, random_state=0)
        >>> forest = RandomForestClassifier(20, random_state=0)
        >>> CalibratedMultiLabel(forest, cv=3).fit(X, Y).predict_proba(X).shape
        (300, 5)
    """

    def __init__(
        self,
        estimator: Estimator = None,
        *,
        method: str = "auto",
        cv: Any = 5,
        response: str = "predict_proba",
        coding: Coding | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.response = response
        self.coding = coding

    def fit(
        self, X: Rows, y: Labels, sample_weight: Any = None, **parameters: Any
    ) -> CalibratedMultiLabel:
        """Fit the estimator and the calibrator.

        Args:
            X: (n, features), passed to the estimator unchanged.
            y: see above.
            sample_weight: one weight per row, for the fits of the estimator and of the
                calibrator.
            parameters: metadata for the estimator's ``fit`` and for the splitter, if
                scikit-learn's metadata routing is enabled.
        """
        checks.choice("response", self.response, RESPONSES)
        if y is None:
            raise checks.InputError(
                "CalibratedMultiLabel requires y to be passed, but the target y is None."
            )
        X, y = indexable(X, y)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        targets = self._targets(y, weights)
        inner = self._inner()
        truth = targets.astype(np.int64) if self.multi_label_ else np.ravel(_dense(y))
        routed = self._routed(weights, parameters)
        if isinstance(self.estimator, FrozenEstimator):
            self.estimator_ = self.estimator
            odds = self._log_odds(self.estimator_, X)
        else:
            self._refuse_unknown(targets)
            fit_parameters = dict(routed["estimator"]["fit"])
            odds = self._cross_fit(inner, X, truth, targets, fit_parameters, routed)
            final: Estimator = clone(inner)
            self.estimator_ = final.fit(X, truth, **fit_parameters)
        self.calibrator_ = self._calibrator(odds, targets, weights)
        self.weighted_ = weights is not None
        self.held_out_probabilities_ = as_often_as_weighted(self._probabilities(odds), weights)
        return self

    def predict_proba(self, X: Rows) -> Array:
        """Return the calibrated probability of each label, (n, L)."""
        check_is_fitted(self)
        return self._probabilities(self._log_odds(self.estimator_, X))

    def to_predictions(
        self, X: Rows, y: Labels = None, ids: Sequence[object] | None = None
    ) -> Predictions:
        """Return the probabilities of rows as ``cr.Predictions``, with the names of the labels.

        Args:
            X: rows.
            y: their truth, if known: (n, L), or class labels. Columns of a data frame are
                matched by name.
            ids: one per row; by default the index of a data frame ``X``, or row numbers.
        """
        from credibly.predictions import Predictions

        estimates = self.predict_proba(X)
        if ids is None and is_data_frame(X):
            ids = [str(name) for name in X.index]
        labels, targets = [str(name) for name in self.classes_], None
        if y is not None and self.multi_label_:
            targets = decode(_dense(in_order(y, labels, "y")), coding=self.coding)
        elif y is not None:
            places = np.searchsorted(self.classes_, np.ravel(_dense(y)))
            targets = np.eye(len(labels), dtype=np.int8)[places]
        return Predictions.from_arrays(
            probabilities=estimates.astype(np.float32),
            targets=as_decoded(targets),
            labels=labels,
            ids=ids,
            metadata={"estimator": type(self).__name__, "calibrator": self.calibrator_.state()},
        )

    # Targets ---------------------------------------------------------------------------------

    def _targets(self, y: Labels, weights: Array | None) -> Array:
        targets = self._decoded(y, y.columns if is_data_frame(y) else None)
        if self.multi_label_:
            return targets
        if weights is not None and not weights.any():
            raise checks.InputError("`sample_weight` must not be zero for all rows.")
        counting = targets if weights is None else targets[weights > 0]
        counted = int(counting.any(axis=0).sum())
        if counted < 2:
            raise checks.InputError(
                "`y` must hold at least two classes in rows that count; got "
                f"{counted} class in {len(targets)} rows."
            )
        return targets

    def _refuse_unknown(self, targets: Array) -> None:
        if (targets == UNKNOWN).any():
            raise checks.InputError(
                "`y` must hold known labels only, since the estimator cannot learn from unknown "
                f"ones; got {int((targets == UNKNOWN).sum())} unknown. Fit the estimator on rows "
                "that are fully known and pass it as `FrozenEstimator(estimator)`, or use "
                "`cr.CredibleClassifier`."
            )
        if targets.dtype.kind == "f":
            raise checks.InputError(
                "`y` must hold 0 and 1, since the estimator cannot learn from soft labels; got "
                "values between. Use `cr.CredibleClassifier`."
            )

    # The estimator ---------------------------------------------------------------------------

    def _routed(self, weights: Array | None, parameters: JsonObject) -> Any:
        """Return the metadata for the estimator's ``fit`` and for the splitter's ``split``."""
        given = {} if weights is None else {"sample_weight": weights}
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", **given, **parameters)
        return {"estimator": {"fit": {**given, **parameters}}, "splitter": {"split": {}}}

    def _splitter(self, cv: Any = None) -> Any:
        cv = cv or self.cv
        return StratifiedFolds(cv) if isinstance(cv, int) else check_cv(cv)

    def _given(self) -> Estimator:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _inner(self) -> Estimator:
        """Return the estimator to fit: one per label if it supports only a single target."""
        inner = self._given()
        if self.multi_label_ and not get_tags(inner).target_tags.multi_output:
            return _OnePerLabel(inner)
        return inner

    def _cross_fit(
        self,
        inner: Estimator,
        X: Rows,
        truth: Labels,
        targets: Array,
        fit_parameters: JsonObject,
        routed: Any,
    ) -> Array:
        """Return out-of-fold log-odds of every row; NaN for rows that are never held out."""
        splitter = self._splitter(self._folds(targets))
        odds = np.full(targets.shape, np.nan)
        for train, test in splitter.split(X, truth, **routed["splitter"]["split"]):
            part = _check_method_params(X, fit_parameters, indices=train)
            copy: Estimator = clone(inner)
            copy.fit(take_rows(X, train), take_rows(truth, train), **part)
            odds[test] = self._log_odds(copy, take_rows(X, test))
        return odds

    def _folds(self, targets: Array) -> Any:
        """Return ``cv``; with classes, at most the number of rows of the rarest class."""
        if self.multi_label_ or not isinstance(self.cv, int):
            return self.cv
        counts = targets.sum(axis=0)
        fewest, rare = int(counts.min()), self.classes_[counts.argmin()]
        if fewest < 2:
            raise checks.InputError(
                f"`y` must hold every class in at least two rows; class {rare} is in {fewest}."
            )
        if fewest < self.cv:
            warnings.warn(
                f"class {rare} has {fewest} rows: {fewest} folds are made in place of {self.cv}.",
                stacklevel=4,
            )
        return min(self.cv, fewest)

    def _log_odds(self, fitted: Estimator, X: Rows) -> Array:
        if self.response == "decision_function":
            odds = np.asarray(fitted.decision_function(X), dtype=np.float64)
            if odds.ndim == 1:  # two classes: one column of scores
                odds = np.stack([-odds, odds], axis=1)
        else:
            result = fitted.predict_proba(X)
            with np.errstate(divide="ignore"):
                odds = logit(label_columns(result, fitted.classes_).astype(np.float64))
        if odds.shape[1] != len(self.classes_):
            raise checks.InputError(
                f"the estimator must give one column per label, {len(self.classes_)}; got "
                f"{odds.shape[1]}. Was it fitted on other labels?"
            )
        return odds

    # Probabilities ---------------------------------------------------------------------------

    def _calibrator(self, odds: Array, targets: Array, weights: Array | None) -> Calibrator:
        held_out = ~np.isnan(odds).any(axis=1)
        weights = None if weights is None else weights[held_out]
        odds, targets, weights = _merged(odds[held_out], targets[held_out], weights)
        exclusive = not self.multi_label_ and self.response == "predict_proba"
        return fit_by_name(self.method, odds, Targets(targets), weights, exclusive=exclusive)

    def _probabilities(self, odds: Array) -> Array:
        return self._normalised(expit(self.calibrator_.transform(odds)))

    # scikit-learn's protocols ----------------------------------------------------------------

    @property
    def n_features_in_(self) -> int:
        """Return the number of features of the fitted estimator."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.n_features_in_

    @property
    def feature_names_in_(self) -> Array:
        """Return the feature names of the fitted estimator."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.feature_names_in_

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata: to the estimator's ``fit`` and to the splitter."""
        to_fit, to_split = (MethodMapping().add(caller="fit", callee=to) for to in ("fit", "split"))
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self._given(), method_mapping=to_fit)
        return router.add(splitter=self._splitter(), method_mapping=to_split)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._given())
        tags.classifier_tags.multi_label = True
        for name in ("sparse", "allow_nan", "pairwise"):
            setattr(tags.input_tags, name, getattr(inner.input_tags, name))
        return tags


class _OnePerLabel(MultiOutputClassifier):
    """One copy of an estimator per label; constant labels are predicted by their rate."""

    def fit(self, X: Rows, Y: Array, sample_weight: Any = None, **parameters: Any) -> _OnePerLabel:
        varies = Y.min(axis=0) < Y.max(axis=0)
        fitted: list[Estimator] = []
        if varies.any():
            super().fit(X, Y[:, varies], sample_weight, **parameters)
            fitted = self.estimators_
        else:
            self.n_features_in_ = X.shape[1]
        others, columns = iter(fitted), zip(varies, Y.T, strict=True)
        self.estimators_ = [next(others) if each else _rate_of(column) for each, column in columns]
        self.classes_ = [estimator.classes_ for estimator in self.estimators_]
        return self

    def decision_function(self, X: Rows) -> Array:
        """Return the decision values of each label, (n, L)."""
        columns = [
            logit(np.asarray(each.predict_proba(X))[:, 1])
            if isinstance(each, DummyClassifier)
            else each.decision_function(X)
            for each in self.estimators_
        ]
        return np.stack(columns, axis=1)


def _rate_of(column: Array) -> DummyClassifier:
    """Return the rate of a label, smoothed by half a row of each class, so it is never 0 or 1."""
    present = float(column.sum())
    weights = [len(column) - present + 0.5, present + 0.5]
    return DummyClassifier(strategy="prior").fit(np.zeros((2, 1)), [0, 1], sample_weight=weights)


def _merged(
    odds: Array, targets: Array, weights: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return distinct rows with the sum of their weights: a repeated row is one row of weight two.

    Equal rows are then never on both sides of a split.
    """
    both = np.hstack([odds, targets])
    _, first, place = np.unique(both, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weights)
    first, total = first[total > 0], total[total > 0]
    return odds[first], targets[first], None if (total == 1).all() else total


def _dense(y: Labels) -> Array:
    return y.toarray() if sparse.issparse(y) else np.asarray(y)


class CredibleClassifier(_Decides):
    """Classifier for zero, one or many labels per row, with calibrated probabilities.

    ``y`` may be class labels (n,), or a matrix (n, L) of 0, 1, −1 or NaN (unknown) and values
    between 0 and 1 (soft). With class labels, exactly one is present, and rows of ``predict_proba``
    sum to one. With a matrix, each column is a separate probability. An array of one column is
    interpreted as class labels, as in scikit-learn; a data frame of one column is one label.

    It uses the models, held-out rows, folds and calibration of ``credibly train``, without a run
    folder. The calibrator is fitted on held-out or out-of-fold scores. With fewer than 20 rows,
    nothing is held out, and probabilities are not calibrated.

    Args:
        loss: name of a loss, as on the command line: ``bce``, ``asl``, ``spa+lpr``,
            ``softmax``; ``auto`` means ``softmax`` if each row has exactly one label, else
            ``bce``.
        model: ``auto``, which compares models on out-of-fold rows, ``linear``, ``mlp``,
            ``forest``, ``boosting``, or a recipe of ``cr.train``, which has all other options.
        l2: penalty on the weights of ``linear``, scikit-learn's 1/C. None: selected on rows
            that the model was not trained on.
        hidden, dropout, epochs, learning_rate, batch_size: of ``mlp``; None for its defaults.
            With one of them, ``linear`` is trained by gradient steps.
        budget: time for the models that ``auto`` tries, estimated from the size of the data.
        calibrate: the name of a calibrator, ``none``, or ``auto``, which compares several on
            out-of-fold rows.
        held_out: share of the rows to hold out if there are no folds.
        coding: meaning of −1 in a matrix ``y`` of only −1 and +1: ``"signed"`` (−1 is absent, 0
            unknown) or ``"unknown"`` (−1 is unknown); see ``credibly.targets``. Needed only for
            such a matrix.
        random_state: seed of order, dropout, trees and initial weights.

    Attributes:
        classes_: class labels, column names of a data frame ``y``, or column numbers.
        run_: the trained run; None if ``y`` has only one class.
        held_out_probabilities_: probabilities of the rows that the calibrator was fitted on,
            each repeated by its weight; label budgets are fitted on them too.
        candidates_: the compared models, one dict per candidate with its out-of-fold log loss;
            empty if nothing was compared.

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
        loss: str = "auto",
        *,
        model: Any = "auto",
        l2: float | None = None,
        hidden: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        budget: str | None = None,
        calibrate: str = "auto",
        held_out: float = 0.2,
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
        self.budget = budget
        self.calibrate = calibrate
        self.held_out = held_out
        self.coding = coding
        self.random_state = random_state

    # Not a separate argument: scikit-learn would infer from it that weights are always supported.
    __metadata_request__fit: ClassVar = {"sample_weight": None}

    def fit(self, X: Rows, y: Labels, **parameters: Any) -> CredibleClassifier:
        """Train and calibrate.

        Args:
            X: (n, features): array, data frame or sparse matrix. NaN in a dense ``X`` is a
                missing value.
            y: see above.
            parameters: ``sample_weight``, the weight of each row in the loss, the selection of
                model and penalty, the calibrator and the label budget. Rows of weight 0 are
                ignored. Standardisation and folds ignore weights. Only proportions matter,
                except with a given ``l2``.
        """
        from credibly.train import fit

        weights = parameters.pop("sample_weight", None)
        if parameters:
            raise checks.InputError(
                f"`fit` takes X, y and sample_weight; got {', '.join(sorted(parameters))}."
            )
        names = [str(name) for name in y.columns] if is_data_frame(y) else None
        y = _without_missing(y)
        X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_accepted(X))
        if weights is not None:
            weights = _check_sample_weight(weights, X, ensure_non_negative=True)
        targets = self._decoded(y, names)
        recipe = self._recipe()
        self.run_: Run | None = None
        self.candidates_: list[JsonObject] = []
        self.weighted_ = weights is not None
        self.held_out_probabilities_ = np.ones((len(targets), 1))
        if len(self.classes_) == 1 and not self.multi_label_:
            return self
        kept = slice(None) if weights is None else np.flatnonzero(weights)
        rows = from_arrays(
            features=_in_float32(X[kept]),
            targets=targets[kept],
            labels=[str(name) for name in self.classes_],
            weights=None if weights is None else weights[kept],
            coding="unknown",
            test=0.0,
            calibration=self.held_out,
            seed=recipe.split_seed,
        )
        run = fit(rows, recipe, seed=self._seed())
        self.run_ = run
        self.candidates_ = run.candidates.get("candidates", [])
        assert run.held_out is not None
        self.held_out_probabilities_ = self._normalised(run.held_out)
        return self

    def predict_proba(self, X: Rows) -> Array:
        """Return the probability of each label, (n, L)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_accepted(X))
        if self.run_ is None:
            return np.ones((X.shape[0], 1))
        return self._normalised(self.run_.probabilities(_in_float32(X)))

    # The pieces ------------------------------------------------------------------------------

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _recipe(self) -> Recipe:
        from credibly.train import Recipe, recipe

        checks.fraction("held_out", self.held_out, low_open=True, high_open=True)
        names = ("l2", "hidden", "dropout", "epochs", "learning_rate", "batch_size", "budget")
        options = {name: getattr(self, name) for name in names}
        if isinstance(self.model, Recipe):
            usual = {"loss": "auto", "calibrate": "auto"}
            shared = {name: getattr(self, name) for name in usual}
            options |= {name: each for name, each in shared.items() if each != usual[name]}
            return recipe(self.model, **options)
        checks.choice("model", self.model, MODELS)
        return recipe(self.model, loss=self.loss, calibrate=self.calibrate, **options)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = self.model not in ("forest", "boosting")
        tags.input_tags.allow_nan = True
        return tags


def _in_float32(rows: Rows) -> Rows:
    """Return features within the range of float32, the precision of training."""
    if sparse.issparse(rows) or rows.dtype == np.float32:
        return rows
    return rows.clip(-LARGEST, LARGEST).astype(np.float32)


def _accepted(rows: Rows) -> JsonObject:
    """Return how scikit-learn checks rows. NaN is a missing feature, except in sparse rows."""
    finite = True if sparse.issparse(rows) else "allow-nan"
    types = (np.float64, np.float32)
    return {"accept_sparse": "csr", "dtype": types, "ensure_all_finite": finite}


def _without_missing(y: Labels) -> Labels:
    """Return a matrix with −1 for NaN, because scikit-learn rejects NaN; other input unchanged."""
    if sparse.issparse(y):
        return y
    array = np.asarray(y)
    if array.ndim != 2 or array.dtype.kind != "f" or not np.isnan(array).any():
        return y
    return np.where(np.isnan(array), array.dtype.type(UNKNOWN), array)
