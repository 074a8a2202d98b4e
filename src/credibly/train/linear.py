"""The solver of all linear models and last layers.

It serves ``linear``, the text model, the last layer of a frozen network (a probe), the last layer
before fine-tuning (LP-FT), the linear candidate of ``auto`` and the scikit-learn estimator. The L2
penalty is selected on rows that the layer was not trained on.

LP-FT, linear probe first: with a random last layer, the first updates fit a pretrained backbone to
noise. If the last layer is solved first on the features of the backbone, its gradients are
meaningful from the first update (Kumar et al. 2022, "Fine-tuning can distort pretrained features").
benchmarks/results/networks.md shows the gain.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data.splits import CALIBRATION, TRAIN, rarest_label
from credibly.memory_limits import give_back
from credibly.pipeline import Pipeline
from credibly.train.callbacks import Callback
from credibly.train.distributed import EpochEvaluator, SingleProcess, score, to_score
from credibly.train.run_folder import Checkpoint, prefixed, restoring, write_checkpoint
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.models.network import HeadedModule, NetworkModule
    from credibly.models.text import TermsLinear
    from credibly.train.recipes import Network as NetworkRecipe
    from credibly.train.recipes import Recipe

Figures = dict[str, float]
Matrix: TypeAlias = Any
"""Rows of features: an array, or a CSR matrix of SciPy, which has no types."""

MAX_PROBE_ROWS = 16_384
"""Rows whose features are kept for the last layer, evenly chosen where there are more."""

MAX_PROBE_ENTRIES = 20_000_000
"""Scores of these rows: some 500 MB with the features."""

SCORED_AT_ONCE = 16
"""Columns of a sparse layer whose weights are in float64 at once."""

Measure = Callable[[Array, Array], Figures]
"""From scores and log-odds of the scored rows to their metrics; ``selection`` chooses."""


@dataclasses.dataclass(frozen=True)
class Folds:
    """The rows that train each model, and the rows that it scores.

    Attributes:
        parts: pairs of row numbers: rows to train on, rows to score.
    """

    parts: list[tuple[Array, Array]]

    def __len__(self) -> int:
        return len(self.parts)

    @classmethod
    def of(cls, rows: Data, recipe: Recipe, models: int = 1) -> Folds:
        """Return the folds of a recipe, or the training and held-out rows for each model."""
        if recipe.folds:
            count = max(models, recipe.folds)
            return cls.crossed(rows.dense_targets, recipe.folds, recipe.split_seed, count)
        train, held_out = (np.flatnonzero(rows.split == part) for part in (TRAIN, CALIBRATION))
        return cls([(train, held_out)] * models)

    @classmethod
    def crossed(cls, targets: Array, count: int, seed: int, models: int | None = None) -> Folds:
        """Return folds in which each row is left out once per round of ``count`` models.

        Args:
            targets: (n, L). The rows of each label are spread evenly over the folds.
            count: number of folds.
            seed: of the order.
            models: number of models, by default ``count``. Each further round of ``count`` models
                divides the rows again.
        """
        parts = []
        for number in range(models or count):
            round_, place = divmod(number, count)
            fold = fold_numbers(targets, count, seed + round_)
            parts.append((np.flatnonzero(fold != place), np.flatnonzero(fold == place)))
        return cls(parts)

    @cached_property
    def trained(self) -> Array:
        """Return the rows that at least one model trains on."""
        return np.unique(np.concatenate([inside for inside, _ in self.parts]))

    @cached_property
    def scored(self) -> Array:
        """Return the rows that at least one model scores, in order, each once."""
        return np.unique(np.concatenate([outside for _, outside in self.parts]))

    def averaged(self, scores: list[Array]) -> Array:
        """Return the mean score of each scored row over the models that score it.

        Example:
            >>> folds = Folds([(np.array([1]), np.array([0])), (np.array([0]), np.array([1]))])
            >>> folds.averaged([np.array([[0.5]]), np.array([[2.0]])]).tolist()
            [[0.5], [2.0]]
        """
        total = np.zeros((len(self.scored), scores[0].shape[1]))
        counts = np.zeros(len(total))
        for (_, outside), own in zip(self.parts, scores, strict=True):
            places = np.searchsorted(self.scored, outside)
            np.add.at(total, places, own)
            np.add.at(counts, places, 1)
        total /= counts[:, None]
        return total


def fold_numbers(targets: Array, count: int, seed: int) -> Array:
    """Return the fold of each row, with the rows of each label spread evenly.

    Example:
        >>> fold_numbers(np.eye(2)[[0, 0, 1, 1]], 2, seed=0).tolist()
        [0, 1, 0, 1]
    """
    order = np.random.default_rng(seed).permutation(len(targets))
    order = order[np.argsort(rarest_label(targets)[order], kind="stable")]
    folds = np.empty(len(targets), dtype=np.int64)
    folds[order] = np.arange(len(targets)) % count
    return folds


@dataclasses.dataclass(frozen=True)
class Layer:
    """A linear layer.

    Attributes:
        weight: (features, scores), float64 or, between two penalties, as exact as the inputs.
        bias: (scores,), float64.
    """

    weight: Array
    bias: Array

    def scores(self, inputs: Matrix) -> Array:
        """Return the scores of a dense or CSR matrix of rows."""
        if not sparse.issparse(inputs):
            return inputs @ self.weight.astype(np.float64, copy=False) + self.bias
        scores = np.empty((inputs.shape[0], len(self.bias)))
        for first in range(0, len(self.bias), SCORED_AT_ONCE):
            part = slice(first, first + SCORED_AT_ONCE)
            scores[:, part] = inputs @ self.weight[:, part].astype(np.float64) + self.bias[part]
        return scores

    @torch.no_grad()
    def copy_to(self, head: nn.Linear | TermsLinear) -> None:
        """Copy weight and bias to a last layer."""
        weight = torch.from_numpy(self.weight)
        head.weight.copy_(weight.T if isinstance(head, nn.Linear) else weight)
        head.bias.copy_(torch.from_numpy(self.bias))


@dataclasses.dataclass(frozen=True)
class Solution:
    """The optimum of a linear layer under the selected penalty.

    Attributes:
        layer: trained on all rows that some fold trains on.
        l2: the penalty: scikit-learn's 1/C.
        scores: out-of-fold, of the scored rows.
        tried: ``l2`` and the metrics of the scored rows for each penalty, in the order of
        trial.
    """

    layer: Layer
    l2: float
    scores: Array
    tried: list[Figures]


def solve(
    inputs: Matrix,
    targets: Array,
    criterion: Loss,
    folds: Folds,
    measure: Measure | None,
    *,
    bias: Array,
    weights: Array | None = None,
    penalties: Sequence[float] | None = None,
    max_iterations: int = 40,
    tolerance: float = 1e-6,
    max_axes: int = 4096,
    block: int = 2**18,
    callback: Callback | None = None,
    state: Path | None = None,
) -> Solution:
    """Minimise Σ loss + l2/2·‖weights‖² over all rows at once; scored rows select ``l2``.

    The layer of each fold is solved for each penalty. The out-of-fold scores select the penalty.
    The final layer is trained with it on the rows of all folds. Biases are not penalised.

    Args:
        inputs: (n, features), an array or CSR matrix; float32 is enough to compare penalties.
        targets: (n, labels) of 0, 1, soft values and −1 for unknown.
        criterion: the loss. Its state, if it has one, is fitted on the result.
        folds: rows to train on and rows to score.
        measure: returns the metrics of scored rows. None if one penalty is given and no row is
        scored.
        bias: (scores,), the initial biases. The initial weights are 0.
        weights: (n,) the weight of each row. None: 1.
        penalties: the penalties to try, in order. None: a search over 1 and 3 times powers of
            ten. It starts near 0.3 times the mean square norm of a row and ends when both
            neighbours of the best penalty are worse.
        max_iterations: maximum number of L-BFGS steps per penalty, each starting from the
            result of the nearest penalty. The final layer may use three times as many.
        tolerance: when penalties are compared, L-BFGS stops at a step that gains less than this
            share of the loss of constant scores. The final layer uses a hundredth of it.
        max_axes: features are rotated to their principal axes up to this number of axes. More
            axes would take minutes.
        block: number of weights that are solved together if the loss separates over labels.
        callback: receives each penalty like an epoch.
        state: folder of checkpoints, one per penalty.

    Example:
        >>> from credibly.losses import BCE
        >>> targets, rows = np.array([[1.0], [0], [0], [0]]), np.arange(4)
        >>> folds = Folds([(rows, rows[:0])])
        >>> options = {"bias": np.zeros(1), "penalties": [1.0]}
        >>> found = solve(np.zeros((4, 1)), targets, BCE(), folds, None, **options)
        >>> float((1 / (1 + np.exp(-found.layer.bias))).round(4)[0])
        0.25
    """
    callback = callback or Callback()
    axes = _Axes.of(inputs, folds.trained, max_axes)
    rotated = axes.along(inputs)
    problem = _LinearProblem(
        *(rotated, targets, criterion, axes.lengths),
        *(max_iterations, tolerance, block, weights, rotated.dtype),
    )
    search = _Search(
        _grid(axes.lengths) if penalties is None else list(penalties), all=penalties is not None
    )
    # Weights have the precision of the inputs, which they are solved in.
    shape = len(axes.lengths), len(bias)
    first = Layer(np.zeros(shape, problem.inputs.dtype), np.asarray(bias, np.float64))
    begin = best = last = [first] * len(folds)
    del first  # the layers are most of the memory
    if state is not None:
        with restoring(state) as saved:
            if saved is not None:
                search.tried = [(int(at), dict(row)) for at, row in saved.values["tried"]]
                best = last = _layers(saved, "best", folds)
                last = _layers(saved, "last", folds) if search.all else best
    while (at := search.next()) is not None:
        begin, l2 = last if search.all else best, search.penalties[at]
        last = []  # frees memory where it is neither the best nor the start
        last = [
            problem.minimise(copy.deepcopy(layer), inside, l2)
            for layer, (inside, _) in zip(begin, folds.parts, strict=True)
        ]
        figures = {"selection": 0.0}
        if measure is not None:
            scored = problem.out_of_fold(last, folds)
            give_back()
            figures = measure(*scored)
            del scored
        search.tried.append((at, {"l2": l2, **figures}))
        best = last if search.best == at else best
        search.report(callback)
        if state is not None:
            kept = {"best": best, "last": last} if search.all else {"best": best}
            write_checkpoint(state, len(search.tried), _checkpoint(search, kept))
        callback.on_update(len(search.tried), len(search.tried) + (search.next() is not None))
    l2 = search.penalties[search.best]
    scores = problem.out_of_fold(best, folds)[0] if measure else np.zeros((0, 0))
    del begin, last
    give_back()
    layer = _mean(best)
    del best
    give_back()
    options = {"max_iterations": 3 * max_iterations, "tolerance": tolerance / 100}
    if sparse.issparse(inputs):  # L-BFGS keeps a score of vectors of this size, now in float64
        options["block"] = block // 2
    final = dataclasses.replace(problem, **options, dtype=np.dtype(np.float64))
    final.minimise(layer, folds.trained, l2)
    problem.fit_state(criterion, layer, folds.trained)
    tried = [figures for _, figures in search.tried]
    return Solution(axes.put_back(layer), l2, scores, tried)


def _mean(layers: list[Layer]) -> Layer:
    """Return the mean of layers, in float64."""
    weight, bias = np.zeros(layers[0].weight.shape), np.zeros(len(layers[0].bias))
    for layer in layers:
        weight += layer.weight
        bias += layer.bias
    weight /= len(layers)
    return Layer(weight, bias / len(layers))


def solve_head(
    network: HeadedModule,
    inputs: Matrix,
    targets: Array,
    criterion: Loss,
    folds: Folds,
    recipe: Recipe,
    **options: Any,
) -> Solution:
    """Solve the last layer of ``network`` for its inputs, and copy the solution into it.

    Args:
        network: its biases are the initial biases.
        inputs, targets, criterion, folds: as for ``solve``.
        recipe: names the metric that selects the penalty.
        options: of ``solve``.
    """
    pipeline, scored, weights = Pipeline(criterion), folds.scored, options.get("weights")
    own = None if weights is None else weights[scored]
    evaluator = EpochEvaluator(recipe, None, targets[scored], own)

    from credibly.losses import Loss

    def measure(scores: Array, odds: Array) -> Figures:
        if type(criterion).ranking_scores is not Loss.ranking_scores:
            scores = pipeline.ranking_scores(scores)
        return evaluator.figures(odds, scores)

    bias = network.head.bias.detach().cpu().double().numpy()
    by = measure if len(scored) else None
    found = solve(inputs, targets, criterion, folds, by, bias=bias, **options)
    found.layer.copy_to(network.head)
    return found


def can_probe(criterion: Loss) -> bool:
    """Return whether the last layer can be solved for this loss before training.

    The loss must have one score per label and no state that training would continue.

    Example:
        >>> from credibly import losses
        >>> [can_probe(losses.from_name(name, num_labels=3)) for name in ("bce", "quasibinary")]
        [True, False]
    """
    return solvable(criterion) and not criterion.has_state and criterion.num_outputs(2) == 2


def solve_last_layer(
    recipe: NetworkRecipe,
    network: NetworkModule,
    criterion: Loss,
    data: Data,
    accelerator: Accelerator | SingleProcess,
    callback: Callback,
) -> None:
    """Solve the last layer on the backbone's features of the training rows.

    Args:
        recipe: of the run.
        network: its last layer is set in place. Its biases are the initial biases.
        criterion: the loss.
        data: training rows, and held-out rows that select the penalty.
        accelerator: device and processes.
        callback: receives the metrics of each penalty, for features of mean square one.
    """
    network.to(accelerator.device)
    limit = max(1, min(MAX_PROBE_ROWS, MAX_PROBE_ENTRIES // data.num_labels))
    train, held_out = (_evenly(data.part(part), limit) for part in ("train", "calibration"))
    how = accelerator, recipe.workers
    options = {"forward": network.features, "progress": callback.on_score}
    parts = [score(network, to_score(rows, recipe), *how, **options) for rows in (train, held_out)]
    inputs = torch.cat(parts).double().numpy()
    if not np.isfinite(inputs).all():
        raise InputError(
            f"The features that `weights` {recipe.weights} give must be finite; got NaN or "
            "infinity. Give other weights, or turn `probe_first` off."
        )
    rows, count = np.arange(len(inputs)), len(train)
    scale = float(np.sqrt(np.square(inputs[:count]).mean())) or 1.0
    targets = np.concatenate([train.dense_targets, held_out.dense_targets]).astype(np.float64)
    known = [rows.weights for rows in (train, held_out) if rows.weights is not None]
    weights = np.concatenate(known) if known else None
    progress = Callback()
    progress.on_epoch = lambda figures: callback.on_linear_probe(
        {key: figures[key] for key in ("l2", "nll", "map", "ace")}
    )
    found = solve_head(
        *(network, inputs / scale, targets, copy.deepcopy(criterion).cpu().eval()),
        *(Folds([(rows[:count], rows[count:])]), dataclasses.replace(recipe, select="nll")),
        callback=progress,
        weights=weights,
    )
    Layer(found.layer.weight / scale, found.layer.bias).copy_to(network.head)


def _evenly(rows: Data, limit: int) -> Data:
    """Return at most ``limit`` rows, evenly spaced."""
    step = -(-len(rows) // limit)
    return rows if step <= 1 else rows.take(np.arange(0, len(rows), step))


def solvable(criterion: Loss) -> bool:
    """Return whether the loss of all rows is a function of the scores that can be minimised.

    The loss must have no parameters and no memory of rows, and its gradient must be the derivative
    of its value.

    Example:
        >>> from credibly import losses
        >>> names = ("bce", "softmax", "role", "asl(detach_weight=true)")
        >>> context = {"num_labels": 3, "num_rows": 2, "average_size": 1}
        >>> [solvable(losses.from_name(name, **context)) for name in names]
        [True, True, False, False]
    """
    learns = next(criterion.parameters(), None) is not None
    return not (learns or criterion.needs_indices or criterion.detached)


# Penalties ------------------------------------------------------------------------------------


def _grid(lengths: Array) -> list[float]:
    """Return penalties, weakest first; the fifth suits the norm of the rows.

    Example:
        >>> _grid(np.ones(300))[3:6]
        [30.0, 100.0, 300.0]
    """
    middle = round(2 * np.log10(max(0.3 * float(lengths.sum()), 1e-12)))
    return [float(f"{(1, 3)[step % 2]}e{step // 2}") for step in range(middle - 4, middle + 7)]


@dataclasses.dataclass
class _Search:
    """The penalties tried so far, and the choice of the next one."""

    penalties: list[float]
    tried: list[tuple[int, Figures]] = dataclasses.field(default_factory=list)
    all: bool = False
    first: int = 4

    @property
    def best(self) -> int:
        """Return the index of the penalty of lowest cost; of ties, the first."""
        return min(self.tried, key=lambda row: row[1]["selection"])[0]

    def next(self) -> int | None:
        """Return the index of the next penalty, or None if the search has ended."""
        known = {at for at, _ in self.tried}
        order = range(len(self.penalties)) if self.all else [self.first]
        if known and not self.all:
            order = [self.best + 1, self.best - 1]  # stronger penalties converge sooner
        left = (at for at in order if at not in known and 0 <= at < len(self.penalties))
        return next(left, None)

    def report(self, callback: Callback) -> None:
        """Report the last penalty like an epoch."""
        figures = {key: value for key, value in self.tried[-1][1].items() if key != "selection"}
        best = [at for at, _ in self.tried].index(self.best) + 1
        callback.on_epoch({"epoch": len(self.tried), **figures, "best_epoch": best})


# One penalty ----------------------------------------------------------------------------------


@dataclasses.dataclass
class _LinearProblem:
    """Inputs along their axes, and the minimisation of the loss over them."""

    inputs: Matrix
    targets: Array
    criterion: Loss
    lengths: Array
    max_iterations: int
    tolerance: float
    block: int
    weights: Array | None
    dtype: np.dtype

    def minimise(self, layer: Layer, rows: Array, l2: float) -> Layer:
        """Minimise the loss over these rows, starting from ``layer``; change and return it."""
        inputs = self.inputs[rows].astype(self.dtype, copy=False)
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights[rows].astype(self.dtype))
        columns = inputs.T
        if sparse.issparse(inputs) and self.dtype == np.float32:
            columns = columns.tocsr()  # for ``_product``; in float64 a copy would take memory
        step = count = self.targets.shape[1]
        if _separate(self.criterion) and len(layer.bias) == count:
            step = max(1, self.block // max(len(self.lengths), 1))
        for first in range(0, count, step):
            chosen = slice(None) if step >= count else slice(first, first + step)
            targets = self.targets[:, chosen][rows]
            own = torch.from_numpy(np.ascontiguousarray(targets, self.dtype))
            if (own >= 0).any():
                part = Layer(layer.weight[:, chosen], layer.bias[chosen])
                found = self._minimum((inputs, columns), own, weights, l2, part)
                part.weight[:], part.bias[:] = found.weight, found.bias
        give_back()
        return layer

    def _minimum(
        self,
        both: tuple[Matrix, Matrix],
        targets: Tensor,
        weights: Tensor | None,
        l2: float,
        start: Layer,
    ) -> Layer:
        inputs, columns = both  # rows, and their transpose
        criterion = copy.deepcopy(self.criterion).train()
        terms = loss_terms(criterion, targets)
        unit = self._unit(targets, l2, terms, len(start.bias)).astype(inputs.dtype)
        size = start.weight.size

        def layer(vector: Array) -> Layer:
            scaled = vector * unit
            return Layer(scaled[:size].reshape(start.weight.shape), scaled[size:])

        def value_and_slope(vector: Array) -> tuple[float, Array]:
            own = layer(vector)
            scores = torch.from_numpy(_product(inputs, own.weight) + own.bias).requires_grad_()
            loss = criterion(scores, targets, weights)
            slope = torch.autograd.grad(loss, scores)[0].numpy()
            weight = own.weight.ravel()
            value = float(loss.detach()) + l2 / terms / 2 * float(weight @ weight)
            slopes = np.concatenate([_product(columns, slope).ravel(), slope.sum(axis=0)])
            slopes[:size] += l2 / terms * weight
            slopes *= unit
            return value, slopes

        first = np.concatenate([start.weight.ravel(), start.bias]).astype(inputs.dtype) / unit
        constant = value_and_slope(np.where(np.arange(len(first)) < size, 0, first))[0]
        gain = self.tolerance * abs(constant)
        return layer(lbfgs(value_and_slope, first, gain, self.max_iterations))

    def _unit(self, targets: Tensor, l2: float, terms: int, num_scores: int) -> Array:
        """Return the preconditioner: curvature^-1/2 of weights and biases at the label rates."""
        known = (targets >= 0).double()
        present = torch.where(targets >= 0, targets, 0).sum(dim=0)
        rates = (present + 0.5) / (known.sum(dim=0) + 1)
        curvature = (known.sum(dim=0).clamp(min=1) / terms * rates * (1 - rates)).numpy()
        if num_scores != len(curvature):
            curvature = np.full(num_scores, curvature.mean())
        weights = self.lengths[:, None] * curvature + l2 / terms
        return 1 / np.sqrt(np.concatenate([weights.ravel(), curvature]))

    def out_of_fold(self, layers: list[Layer], folds: Folds) -> tuple[Array, Array]:
        """Return scores and log-odds of the scored rows, by layers that did not train on them."""
        scores, odds = [], []
        for layer, (inside, outside) in zip(layers, folds.parts, strict=True):
            criterion = copy.deepcopy(self.criterion).eval()
            self.fit_state(criterion, layer, inside)
            scores.append(layer.scores(self.inputs[outside]))
            linked = Pipeline(criterion).link_log_odds(scores[-1])
            odds.append(scores[-1] if np.array_equal(linked, scores[-1]) else linked)
        averaged = folds.averaged(scores)
        if all(one is other for one, other in zip(scores, odds, strict=True)):
            return averaged, averaged  # as for bce; the arrays are large
        return averaged, folds.averaged(odds)

    def fit_state(self, criterion: Loss, layer: Layer, rows: Array) -> None:
        """Fit the state of the link, if it has one, on these rows."""
        if criterion.has_state:
            scores = torch.from_numpy(layer.scores(self.inputs[rows]))
            criterion.fit_state([(scores, torch.from_numpy(self.targets[rows]).double())])


def _product(matrix: Matrix, dense: Array) -> Array:
    """Return matrix · dense. torch multiplies sparse float32 matrices three times as fast."""
    if not sparse.issparse(matrix) or matrix.dtype != np.float32:
        return matrix @ dense
    terms, starts, values = (
        torch.from_numpy(array) for array in (matrix.indices, matrix.indptr[:-1], matrix.data)
    )
    whole = torch.from_numpy(np.ascontiguousarray(dense))
    return nn.functional.embedding_bag(
        terms, whole, starts, mode="sum", per_sample_weights=values
    ).numpy()


def lbfgs(
    value_and_slope: Callable[[Array], tuple[float, Array]],
    start: Array,
    gain: float,
    max_iterations: int,
    history: int = 6,
) -> Array:
    """Return the minimum of a smooth function, by L-BFGS.

    SciPy's L-BFGS-B spends most of its time on bounds, which are not needed here. The import of
    torch's optimizer takes 1.4 s.

    Args:
        value_and_slope: returns value and gradient at a point.
        start: the initial point. Scale the variables so that curvatures are near one.
        gain: L-BFGS stops at a step that gains less than this.
        max_iterations: maximum number of steps.
        history: number of pairs of vectors to keep.

    Example:
        >>> lbfgs(lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3)), np.zeros(2), 1e-9, 50)
        array([3., 3.])
    """
    point, (value, slope) = start, value_and_slope(start)
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=history)
    for _ in range(max_iterations):
        step = _direction(slope, pairs)
        descent = float(step @ slope)
        if not descent < 0:
            if not pairs or not slope.any():
                break
            pairs.clear()
            continue
        length = 1.0
        for _ in range(10):  # until the value decreases enough
            moved = point + length * step
            new_value, new_slope = value_and_slope(moved)
            if new_value <= value + 1e-4 * length * descent:
                break
            bend = new_value - value - length * descent
            best = -descent * length**2 / (2 * bend) if np.isfinite(bend) else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
        else:
            break  # any further decrease would be rounding
        change, bent = moved - point, new_slope - slope
        curvature = float(change @ bent)
        if curvature > 1e-12 * float(bent @ bent):
            pairs.append((change, bent, curvature))
        gained, point, value, slope = value - new_value, moved, new_value, new_slope
        if gained <= gain:
            break
    return point


def _direction(slope: Array, pairs: deque[tuple[Array, Array, float]]) -> Array:
    """Return −H·slope, where H is the inverse curvature estimated from the pairs."""
    step, weights = -slope, []
    for change, bent, curvature in reversed(pairs):
        weights.append(float(change @ step) / curvature)
        step -= weights[-1] * bent
    if pairs:
        _, bent, curvature = pairs[-1]
        step *= curvature / float(bent @ bent)
    for (change, bent, curvature), weight in zip(pairs, reversed(weights), strict=True):
        step += (weight - float(bent @ step) / curvature) * change
    return step


def loss_terms(criterion: Loss, targets: Tensor) -> int:
    """Return the number of terms of the mean: known entries, or rows if labels are coupled."""
    return max(int((targets >= 0).sum()), 1) if criterion.labelwise else len(targets)


def _separate(criterion: Loss) -> bool:
    """Return whether the loss separates over labels, so blocks of labels can be solved alone."""
    from credibly.losses import BinaryLoss

    # `labelwise` describes the link, and pair losses have one too. Buffers are weights per label.
    return isinstance(criterion, BinaryLoss) and next(criterion.buffers(), None) is None


@dataclasses.dataclass(frozen=True)
class _Axes:
    """Orthonormal directions of features, along which the curvature of a loss is nearly diagonal.

    The optimum under an L2 penalty is a linear combination of the rows. Expressed in the axes of
    the rows, it has the same loss and the same norm, with only one weight per label and axis.

    Attributes:
        directions: (features, axes). None for the original features: if rows are sparse, or if
            computing the axes would take too long.
        lengths: (axes,), the mean square of the rows along each axis.
    """

    directions: Array | None
    lengths: Array

    @classmethod
    def of(cls, inputs: Matrix, rows: Array, max_axes: int) -> _Axes:
        inputs = inputs[rows]
        count, width = inputs.shape
        if sparse.issparse(inputs):
            square = inputs.multiply(inputs).mean(axis=0)
            return cls(None, np.asarray(square).ravel())
        if min(count, width) > max_axes:
            return cls(None, np.square(inputs).mean(axis=0))
        if count < width:
            _, singular, directions = np.linalg.svd(inputs, full_matrices=False)
            return cls(np.ascontiguousarray(directions.T), singular**2 / count)
        lengths, directions = np.linalg.eigh(inputs.T @ inputs / count)
        return cls(directions, lengths.clip(min=0))

    def along(self, inputs: Matrix) -> Matrix:
        return inputs if self.directions is None else inputs @ self.directions

    def put_back(self, layer: Layer) -> Layer:
        """Return a layer along the axes as a layer of the original features."""
        if self.directions is None:
            return layer
        return Layer(self.directions @ layer.weight, layer.bias)


# Checkpoints ----------------------------------------------------------------------------------


def _checkpoint(search: _Search, kept: dict[str, list[Layer]]) -> Checkpoint:
    tensors: dict[str, Tensor] = {}
    for name, layers in kept.items():
        for number, layer in enumerate(layers):
            own = {"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)}
            tensors |= prefixed(f"{name}.{number}", own)
    return Checkpoint(tensors, {"tried": search.tried})


def _layers(saved: Checkpoint, name: str, folds: Folds) -> list[Layer]:
    found = [saved.group(f"{name}.{number}") for number in range(len(folds))]
    return [Layer(each["weight"].numpy(), each["bias"].numpy()) for each in found]
