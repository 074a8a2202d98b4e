"""What ``benchmarks.studies.default`` compares auto with.

A peer yields the probabilities of the test rows, and then, if it has a calibrated version, those of
that version for each seed: so the models of all rows are trained once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Features and targets of the training rows, then of the test rows."""

Peer = Callable[[Rows, Sequence[int]], Iterator[np.ndarray]]
"""Called with the rows and the seeds: the first is that of the models, each divides the rows that
calibrate. Several go with models that do not depend on a seed."""

FOLDS = 5
FEWEST = 5
"""Rows of each kind that a label needs to be searched over folds or calibrated."""

MANY_ROWS = 2500
"""From here on one fold in five gives the scores that a label is calibrated on."""

MANY_TARGETS = 2_000_000
"""Rows × labels from here on have 100 trees, scikit-learn's default, in 3 to 12 GB; below, 300."""


def logistic(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """One-vs-rest regression on standardised columns, C of each label by folds and log loss."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def make(fewest: int) -> Any:
        plain: Any = LogisticRegression(max_iter=300)
        if fewest >= FEWEST:
            grid = {"C": np.logspace(-4, 1, 6)}
            plain = GridSearchCV(plain, grid, scoring="neg_log_loss", cv=_folds(seeds[0]))
        return make_pipeline(StandardScaler(), plain)

    def again(fitted: Any) -> Any:
        search = fitted[-1]
        return make_pipeline(StandardScaler(), search.estimator.set_params(**search.best_params_))

    return _by_label(rows, seeds, make, again)


def boosting(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """Histogram boosting of scikit-learn for each label, with its defaults."""
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier

    make = lambda _: HistGradientBoostingClassifier(random_state=seeds[0])  # noqa: E731
    return _by_label(rows, seeds, make, clone)


def lightgbm(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """LightGBM for each label, with its defaults."""
    from lightgbm import LGBMClassifier  # type: ignore[import-not-found, unused-ignore]
    from sklearn.base import clone

    make = lambda _: LGBMClassifier(random_state=seeds[0], n_jobs=1, verbosity=-1)  # noqa: E731
    return _by_label(rows, seeds, make, clone)


def tuned_lightgbm(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """LightGBM for each label; a held-out fifth stops it and chooses of four settings.

    The model is that of all rows with the setting and the iterations found. The same held-out
    scores calibrate it.
    """
    from lightgbm import LGBMClassifier, early_stopping

    features, targets, test, _ = rows
    (seed,) = seeds
    plain = np.empty((len(test), targets.shape[1]))
    calibrated = plain.copy()
    how: Any = {"random_state": seed, "n_jobs": 1, "verbosity": -1, "subsample_freq": 1}
    how |= {"learning_rate": 0.05, "min_child_samples": 10, "reg_lambda": 1.0}
    for label in range(targets.shape[1]):
        known, truth, fewest = _label(targets, label)
        if fewest < FEWEST:
            plain[:, label] = calibrated[:, label] = (truth.sum() + 0.5) / (len(truth) + 1)
            continue
        own = features[known]
        inside, outside = next(iter(_folds(seed).split(own, truth)))
        found = []
        for leaves, share in ((7, 0.3), (7, 1.0), (31, 0.3), (31, 1.0)):
            more = {"num_leaves": leaves, "colsample_bytree": share}
            model = LGBMClassifier(n_estimators=500, **how, **more)
            stop = [early_stopping(20, verbose=False)]
            held = (own[outside], truth[outside])
            model.fit(own[inside], truth[inside], eval_set=[held], callbacks=stop)
            found.append((model.best_score_["valid_0"]["binary_logloss"], model, more))
        _, best, more = min(found, key=lambda each: each[0])
        whole = LGBMClassifier(n_estimators=max(1, best.best_iteration_), **how, **more)
        whole.fit(own, truth)
        plain[:, label] = np.asarray(whole.predict_proba(test))[:, 1]
        sigmoid = _sigmoid(_scores(best, own[outside]), truth[outside])
        calibrated[:, label] = sigmoid(_scores(whole, test))
    yield plain
    yield calibrated


def catboost(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """CatBoost of all labels or classes at once with its defaults, stopped by a held-out fifth.

    It cannot leave out unknown targets, which count as absent; labels that do not vary among its
    rows keep their rate. The held-out scores calibrate it.
    """
    from catboost import CatBoostClassifier

    features, targets, test, _ = rows
    (seed,) = seeds
    truth = targets > 0.5
    order = np.random.default_rng(seed).permutation(len(features))
    held, fit = order[: len(order) // 5], order[len(order) // 5 :]
    varied = np.flatnonzero(truth[fit].any(axis=0) & ~truth[fit].all(axis=0))
    classes = bool((targets >= 0).all() and (truth.sum(axis=1) == 1).all())
    aims = truth.argmax(axis=1) if classes else truth[:, varied].astype(int)
    model = CatBoostClassifier(
        loss_function="MultiClass" if classes else "MultiLogloss",
        **{"random_seed": seed, "thread_count": 1, "early_stopping_rounds": 50},
        **{"allow_writing_files": False, "verbose": False},
    )
    model.fit(features[fit], aims[fit], eval_set=(features[held], aims[held]))
    plain = np.repeat((truth.sum(axis=0) + 0.5)[None] / (len(truth) + 1), len(test), axis=0)
    plain[:, varied] = model.predict_proba(test)
    yield plain
    calibrated = plain.copy()
    scores, final = (model.predict(x, prediction_type="RawFormulaVal") for x in (features, test))
    for place, label in enumerate(varied):
        own = truth[held, label]
        if min(own.sum(), (~own).sum()) >= FEWEST:
            sigmoid = _sigmoid(scores[held, place], own)
            calibrated[:, label] = sigmoid(final[:, place])
    yield calibrated


def forest(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """Random forest of all labels, or of the classes; calibrated on out-of-bag votes."""
    from sklearn.ensemble import RandomForestClassifier

    return _forest(rows, seeds, RandomForestClassifier)


def extra_trees(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """Extra trees on bootstrap samples, calibrated the same way."""
    from sklearn.ensemble import ExtraTreesClassifier

    return _forest(rows, seeds, ExtraTreesClassifier)


def _forest(rows: Rows, seeds: Sequence[int], made: Any) -> Iterator[np.ndarray]:
    features, targets, test, _ = rows
    (seed,) = seeds
    votes, out_of_bag = _votes(features, targets, test, seed, made)
    yield votes
    found = votes.copy()
    for label in range(targets.shape[1]):
        known = (targets[:, label] >= 0) & np.isfinite(out_of_bag[:, label])
        truth = targets[known, label] > 0.5
        if min(truth.sum(), (~truth).sum()) >= FEWEST:
            found[:, label] = _sigmoid(out_of_bag[known, label], truth)(votes[:, label])
    yield found


def _votes(
    features: np.ndarray, targets: np.ndarray, test: np.ndarray, seed: int, made: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Votes for the test rows, and of the trees that did not see it for each training row.

    Where every row has exactly one label the forest is one of classes.
    """
    trees = 100 if targets.size >= MANY_TARGETS else 300
    truth = targets > 0.5
    varied = truth.any(axis=0) & ~truth.all(axis=0)
    classes = (targets >= 0).all() and (truth.sum(axis=1) == 1).all()
    model = made(trees, random_state=seed, oob_score=True, bootstrap=True)
    model.fit(features, truth[:, varied].argmax(axis=1) if classes else truth[:, varied])
    found: Any = model.predict_proba(test)  # of classes or one label an array, else a list of them
    inside = truth.astype(np.float64)
    votes = np.repeat(inside[:1], len(test), axis=0)  # of labels that never vary
    if classes:
        votes[:, varied], inside[:, varied] = found, model.oob_decision_function_
    else:
        votes[:, varied] = np.stack(found if isinstance(found, list) else [found], axis=2)[:, 1]
        inside[:, varied] = model.oob_decision_function_.reshape(len(truth), 2, -1)[:, 1]
    moved = 0.5 / trees  # votes of 0 and 1 are moved by half a tree
    return np.clip(votes, moved, 1 - moved), inside


def network(loss: str) -> Peer:
    """One hidden layer trained with Adam, read by the sigmoid; it has no calibrated version."""

    def run(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
        import torch
        from torch import nn

        import credibly as cr
        from benchmarks.studies.training import scores_of, train

        features, targets, test, _ = rows
        (seed,) = seeds
        mean, scale = features.mean(axis=0), features.std(axis=0)
        scale[scale == 0] = 1
        features, test = (features - mean) / scale, (test - mean) / scale
        torch.manual_seed(seed)
        width = targets.shape[1]
        net = nn.Sequential(nn.Linear(features.shape[1], 512), nn.ReLU(), nn.Linear(512, width))
        criterion: Any = cr.losses.from_name(loss, num_labels=width, num_rows=len(features))
        train(net, criterion, features, targets, seed=seed, epochs=30)
        yield torch.sigmoid(scores_of(net, test)).numpy()

    return run


def twenty_lines(rows: Rows, seeds: Sequence[int]) -> Iterator[np.ndarray]:
    """What everybody writes: BCE, the epoch of the best held-out log loss, one affine map."""
    import torch
    from sklearn.linear_model import LogisticRegression
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits

    from benchmarks.studies.training import scores_of, train

    features, targets, test, _ = rows
    (seed,) = seeds
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale == 0] = 1
    features, test = (features - mean) / scale, (test - mean) / scale
    order = np.random.default_rng(seed).permutation(len(features))
    held, fit = order[: len(order) // 5], order[len(order) // 5 :]

    def cost(scores: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        known = truth >= 0
        return binary_cross_entropy_with_logits(scores[known], truth[known])

    torch.manual_seed(seed)
    width = targets.shape[1]
    net = nn.Sequential(nn.Linear(features.shape[1], 512), nn.ReLU(), nn.Linear(512, width))
    truth = torch.from_numpy(targets[held]).double()
    judge = lambda net: -float(cost(scores_of(net, features[held]), truth))  # noqa: E731
    train(net, cost, features[fit], targets[fit], seed=seed, epochs=30, judge=judge)
    scores, known = scores_of(net, features[held]).numpy(), targets[held] >= 0
    affine = LogisticRegression(C=np.inf).fit(scores[known][:, None], targets[held][known] > 0.5)
    final = scores_of(net, test).numpy()
    yield affine.predict_proba(final.reshape(-1, 1))[:, 1].reshape(final.shape)


def _folds(seed: int) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(FOLDS, shuffle=True, random_state=seed)


def _by_label(
    rows: Rows, seeds: Sequence[int], make: Callable[[int], Any], again: Callable[[Any], Any]
) -> Iterator[np.ndarray]:
    """One estimator per label, and a sigmoid on the scores of rows that such a one did not see.

    ``make`` is given the rows of the rarer kind; ``again`` makes an estimator with the choices of a
    fitted one, to be fitted on the folds.
    """
    features, targets, test, _ = rows
    found = np.empty((len(test), targets.shape[1]))
    fitted: dict[int, Any] = {}
    for label in range(targets.shape[1]):
        known, truth, fewest = _label(targets, label)
        if not fewest:
            found[:, label] = (truth.sum() + 0.5) / (len(truth) + 1)
            continue
        fitted[label] = make(fewest).fit(features[known], truth)
        found[:, label] = fitted[label].predict_proba(test)[:, 1]
    yield found
    for seed in seeds:
        yield _calibrated(rows, found, fitted, again, seed)


def _calibrated(
    rows: Rows,
    plain: np.ndarray,
    fitted: dict[int, Any],
    again: Callable[[Any], Any],
    seed: int,
) -> np.ndarray:
    """The probabilities of fitted estimators through a sigmoid; ``plain`` of labels too rare."""
    features, targets, test, _ = rows
    found = plain.copy()
    for label, model in fitted.items():
        known, truth, fewest = _label(targets, label)
        if fewest < FEWEST:
            continue
        own, scores = features[known], np.full(len(truth), np.nan)
        splits = list(_folds(seed).split(own, truth))
        for inside, outside in splits if len(truth) < MANY_ROWS else splits[:1]:
            fold = again(model).fit(own[inside], truth[inside])
            scores[outside] = _scores(fold, own[outside])
        held = np.isfinite(scores)
        found[:, label] = _sigmoid(scores[held], truth[held])(_scores(model, test))
    return found


def _label(targets: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Which rows know the label, its truth there, and the rows of the rarer kind."""
    known = targets[:, label] >= 0
    truth = targets[known, label] > 0.5
    return known, truth, int(min(truth.sum(), (~truth).sum()))


def _scores(model: Any, features: np.ndarray) -> np.ndarray:
    """Log-odds."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(features))
    return np.asarray(model.predict(features, raw_score=True))  # LightGBM


def _sigmoid(scores: np.ndarray, truth: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Platt's sigmoid with his targets, which is scikit-learn's calibration by default."""
    from sklearn.linear_model import LogisticRegression

    positives, negatives = int(truth.sum()), int((~truth).sum())
    soft = np.where(truth, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    centre, scale = scores.mean(), scores.std() or 1.0
    column = ((scores - centre) / scale)[:, None]
    kinds = np.repeat([True, False], len(scores))
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    model.fit(np.vstack([column, column]), kinds, sample_weight=np.concatenate([soft, 1 - soft]))
    return lambda given: model.predict_proba(((given - centre) / scale)[:, None])[:, 1]
