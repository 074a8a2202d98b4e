"""Train, calibrate, predict and measure: from data to a run, in a folder or in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError, whole_number
from credibly.data import Data
from credibly.data.splits import TEST, TRAIN, as_often_as_weighted
from credibly.data.torch_datasets import TorchRows
from credibly.files import write_json
from credibly.memory_limits import give_back
from credibly.models.network import HeadedModule, NetworkModule
from credibly.pipeline import Pipeline
from credibly.targets import SparseTargets, Targets
from credibly.train import recipes
from credibly.train.auto import choose, problem_of
from credibly.train.callbacks import Callback
from credibly.train.defaults import resolve
from credibly.train.distributed import (
    EpochEvaluator,
    SingleProcess,
    build_accelerator,
    mixed,
    score,
    threads_for,
    to_score,
)
from credibly.train.extreme_classification import (
    ManyLabelsEvaluator,
    check_many,
    fit_calibrator,
    top_of_rows,
    top_predictions,
)
from credibly.train.extreme_classification import measured as top_measured
from credibly.train.linear import Folds, Matrix, solve_head, solve_last_layer
from credibly.train.recipes import Recipe, Solved, is_compared
from credibly.train.run import (
    OBJECT,
    PYTHON,
    Run,
    build_from_factory,
    build_network,
    load,
    loss_of,
    missing_object,
    ready,
    text_model,
    write_calibration,
    write_model,
)
from credibly.train.run_folder import (
    MANIFEST,
    METRICS,
    MIN_ROWS,
    Log,
    all_rows_train,
    claimed,
    description,
    few_rows,
    newest_checkpoint,
    pooled,
    write_manifest,
)
from credibly.train.training_loop import Trainer, estimated
from credibly.types import Array, JsonObject

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.losses import Loss
    from credibly.predictions import Predictions


def fit(
    data: Data,
    recipe: Recipe | str | None = None,
    *,
    folder: str | Path | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    callback: Callback | None = None,
) -> Run:
    """Train on the training rows of ``data``, calibrate on held-out rows, measure on test rows.

    If a run fails before its first checkpoint, its folder is removed. The global random state does
    not change.

    Args:
        data: from ``cr.data.load``.
        recipe: ``Linear()``, ``Network(epochs=5)`` …, or the name of a model, which selects its
            recipe with default options. None: ``Auto()``.
        folder: of the run: ``config.toml``, ``model.safetensors``, ``state/``, ``log.jsonl``,
            ``calibration.json``, ``predictions.parquet`` (test rows), ``metrics.json``,
            ``manifest.json`` (checksums). None: the run is kept in memory.
        seed: of order, dropout, augmentation, trees and initial weights.
        resume: continue the run in ``folder``; start one if there is none.
        overwrite: replace the run in ``folder``, if there is one.
        callback: called after each update and each epoch.

    Example:
        >>> import credibly as cr
        >>> run = fit(cr.data.synthetic(300), "linear")
        >>> run.predict(cr.data.synthetic(5).features).probabilities.shape
        (5, 20)
    """
    if not isinstance(data, Data):
        raise InputError(
            "`data` must come from `cr.data.load` or `cr.data.from_arrays`; got "
            f"{'the name of a file' if isinstance(data, (str, Path)) else type(data).__name__}. "
            "Load it first: `cr.data.load(…)`."
        )
    if resume and overwrite:
        raise InputError(
            "`resume` continues a run and `overwrite` replaces it. Give only one of them."
        )
    if (resume or overwrite) and folder is None:
        raise InputError("`resume` and `overwrite` need `folder`; got none.")
    seed = whole_number("seed", seed, 0)
    recipe, model, loss = with_names(recipes.recipe("auto" if recipe is None else recipe))
    recipe = resolve(recipe, data, loss)
    accelerator = build_accelerator(recipe.network().precision)
    rows = pooled(data, recipe)
    criterion = build_loss(recipe, data, len(rows.part("train")), loss)
    if data.weights is not None:
        rows = _weighted(rows, recipe, criterion)
    all_train = all_rows_train(data, recipe)
    _check_rows(rows, recipe, criterion, accelerator.num_processes, all_train)
    if is_compared(recipe):
        import sklearn.ensemble  # noqa: F401 - the thread limit covers only loaded libraries
    threads = nullcontext() if data.features is None else threads_for(data.features.size)
    place = None if folder is None else Path(folder)
    about, callback = description(data, recipe), callback or Callback()
    with torch.random.fork_rng(devices=[]), threads:
        job = _Job(rows, recipe, seed, criterion, accelerator, callback, about, place, all_train)
        network = None if is_compared(recipe) else _network(job, model)
        if job.folder is None:
            return job.run(network)
        main = accelerator.is_main_process
        options = {"resume": resume, "overwrite": overwrite}
        with claimed(job.folder, recipe, seed, data, **options) if main else nullcontext():
            accelerator.wait_for_everyone()
            if resume and (job.folder / MANIFEST).exists():
                return load(job.folder, model=model, loss=loss, allow_python=True)
            run = job.run(network)
            accelerator.wait_for_everyone()
            return run


@dataclasses.dataclass
class _Job:
    """The rows with their splits, the recipe and the folder of a run to train."""

    rows: Data
    recipe: Recipe
    seed: int
    criterion: Loss
    accelerator: Accelerator | SingleProcess
    callback: Callback
    about: JsonObject
    folder: Path | None
    all_train: bool

    @property
    def state(self) -> Path | None:
        """Return the folder of checkpoints."""
        return None if self.folder is None else self.folder / "state"

    def empty(self, model: nn.Module) -> Run:
        """Return the run of ``model`` without calibrator, decision and metrics."""
        pipeline = Pipeline(self.criterion)
        return Run(self.folder, self.recipe, self.seed, self.about, model, pipeline)

    def run(self, network: nn.Module | None) -> Run:
        """Train; return the finished run. ``network`` is None if models are compared."""
        if network is None:
            problem = problem_of(self.rows, self.criterion, self.recipe, self.seed)
            choice = choose(problem, self.recipe, self.callback)
            run = self.empty(choice.model)
            run.candidates, run.spent = choice.document, choice.spent
            scores = torch.from_numpy(choice.scores) if problem.crossed else None
            return _finish(self, run, self.rows, choice.model, scores)
        run = self.empty(network)
        cached = self.folder is None and self.recipe.network().features
        with TemporaryDirectory() if cached else nullcontext(self.folder) as keep:
            rows, trained = _inputs(self, network, keep)
            scores = None
            if isinstance(self.recipe, Solved):
                scores, run.candidates = _solve(self, rows, trained)
                give_back()  # what the search has freed
            else:
                _train(self, rows, trained)
            return _finish(self, run, rows, trained, scores)


# Training ------------------------------------------------------------------------------------


def _network(job: _Job, model: nn.Module | None) -> nn.Module:
    """Return the network to train: the user's or a fresh one."""
    network, rows, criterion = job.recipe.network(), job.rows, job.criterion
    built = build_model(network, rows, criterion, job.seed, model)
    if isinstance(rows.targets, SparseTargets):
        check_many(network, rows, criterion, built, job.accelerator.num_processes)
    return built


def _weighted(rows: Data, recipe: Recipe, criterion: Loss) -> Data:
    """Return rows with weights of mean one. With a given penalty, weights do not change."""
    from credibly.losses import BatchLoss

    assert rows.weights is not None
    what = "Weights of rows (`sample_weight`)"
    if any(isinstance(each, BatchLoss) for each in criterion.modules()):
        raise InputError(
            f"{what} need a loss that treats rows separately, such as bce, spa or asl; got "
            f"{recipe.loss}."
        )
    if isinstance(rows.targets, SparseTargets) or recipe.network().mixup:
        raise InputError(f"{what} cannot be combined with sparse targets or `mixup`.")
    used = rows.weights[rows.split != TEST]
    if not used.sum():
        raise InputError(f"{what} must not be 0 for all rows.")
    if isinstance(recipe, Solved) and recipe.l2 is not None and not few_rows(rows):
        return rows
    same = bool((used == used[0]).all())
    return dataclasses.replace(rows, weights=None if same else rows.weights / used.mean())


def _check_rows(
    data: Data, recipe: Recipe, criterion: Loss, processes: int, all_train: bool
) -> None:
    train, held_out = data.part("train"), data.part("calibration")
    if len(train) < max(processes, 2):
        raise InputError(
            f"{train.source} must have training rows, at least {max(processes, 2)}; "
            f"it has {len(train)}. Mark them 0 in `split`."
        )
    known, present = train.decoded.num_known, int(train.decoded.label_counts().sum())
    if not known:
        raise InputError(
            f"the training rows of {train.source} must hold known labels; all {len(train):,} × "
            f"{len(train.labels):,} targets are −1 (unknown). If −1 means absent, give "
            '`coding="signed"`.'
        )
    if known == present:
        raise InputError(
            f"{train.source} must have training rows with absent labels; all {known:,} known "
            "targets are present, so a model would predict every label everywhere. If −1 means "
            "absent, give `coding='signed'`. If only present labels were recorded, code the "
            "others 0 and use --loss an, epr or role."
        )
    network = recipe.network()
    if network.frozen_epochs and processes > 1:
        raise InputError(
            f"`frozen_epochs` trains on one process only; got {processes}. Train the last layer "
            "first with `frozen`, then give its model.safetensors as `weights`."
        )
    if network.mixup and criterion.single_label:
        raise InputError(
            f"`mixup` makes soft targets; loss {recipe.loss!r} needs exactly one label per row. "
            "Use softmax or bce, or leave `mixup` out."
        )
    needed = recipe.calibrate != "none" or recipe.select != "last"
    if needed and not all_train and not held_out.has_truth:
        raise InputError(
            f"{train.source} has no held-out rows with known labels, which choose the epoch and "
            "the calibrator. Mark some rows 2 in `split`, or give --calibrate none --select last."
        )
    if criterion.single_label:
        counts = train.decoded.row_counts().round()
        if (counts != 1).any():
            row = int((counts != 1).argmax())
            raise InputError(
                f"loss {recipe.loss!r} needs exactly one label per row; row "
                f"{str(train.ids[row])!r} of {train.source} has {counts[row]:g}. "
                "Use bce or spa for many labels."
            )


def _inputs(job: _Job, model: nn.Module, keep: str | Path | None) -> tuple[Data, nn.Module]:
    """Return the rows and the network to train: all of it, or its head on cached features."""
    rows, network = job.rows, job.recipe.network()
    if rows.texts is not None and rows.encoded is None:
        rows = rows.encoded_by(text_model(model).encode)
    if not network.features:
        return rows, model
    from credibly.models import cache_features
    from credibly.models.network import Head

    assert isinstance(model, NetworkModule)  # build_user_model rejects others
    assert keep is not None
    keep, device = Path(keep) / "features", job.accelerator.device
    options = {name: getattr(network, name) for name in ("image_size", "eval_crop", "workers")}
    model.to(device)
    if job.accelerator.is_main_process:
        cache_features(model, rows, keep, device=device, **options)
    job.accelerator.wait_for_everyone()
    return cache_features(model, rows, keep, device=device, **options), Head(model)


def _logging(job: _Job) -> Callback:
    """Return the callback. On the main process it also writes the log; others get a silent one."""
    if not job.accelerator.is_main_process:
        return Callback()
    if job.folder is None:
        return job.callback
    return Log(job.folder, job.callback)


def _train(job: _Job, rows: Data, network: nn.Module) -> None:
    """Train by gradient steps; keep the weights of the best epoch."""
    recipe, callback = job.recipe.network(), _logging(job)
    held_out = rows.part("calibration")
    held_out_rows = to_score(held_out, recipe)
    if isinstance(held_out.targets, SparseTargets):
        evaluator = ManyLabelsEvaluator(recipe, held_out_rows, held_out.targets)
    else:
        evaluator = EpochEvaluator(recipe, held_out_rows, held_out.targets, held_out.weights)
    begun = job.state is not None and newest_checkpoint(job.state) is not None
    train_rows = _augmented(rows.part("train"), recipe, job.seed)
    alone = isinstance(job.accelerator, SingleProcess) and type(job.callback) is not Callback
    ours = isinstance(network, NetworkModule)  # copying others may be expensive
    if rows.kind == "images" and ours and alone and not begun:
        parts = train_rows, len(held_out), len(rows.part("test"))
        callback.on_estimate(estimated(recipe, network, job.criterion, *parts))
    if recipe.probe_first and not begun:
        assert isinstance(network, NetworkModule)  # resolve rejects others
        solve_last_layer(recipe, network, job.criterion, rows, job.accelerator, callback)
    Trainer(
        recipe,
        network,
        job.criterion,
        train_rows,
        evaluator,
        weights=rows.part("train").weights,
        seed=job.seed,
        accelerator=job.accelerator,
        folder=job.state,
        callback=callback,
    ).run()


def _solve(job: _Job, rows: Data, network: nn.Module) -> tuple[Tensor | None, JsonObject]:
    """Solve the last layer of ``network``; return its out-of-fold scores and the trials."""
    recipe, criterion = job.recipe, job.criterion
    assert isinstance(recipe, Solved)
    assert isinstance(network, HeadedModule)  # Solved recipes name built-in networks
    rows = rows.take(rows.split != TEST)
    folds = Folds.of(rows, recipe)
    found = solve_head(
        *(network, _layer_inputs(network, rows), rows.dense_targets, criterion, folds, recipe),
        weights=rows.weights,
        penalties=recipe.penalties,
        callback=_logging(job),
        state=job.state,
    )
    trials = [{"l2": each["l2"], "cost": each["selection"]} for each in found.tried]
    best = min(found.tried, key=lambda each: each["selection"])
    figures = _in_json({key: best[key] for key in ("nll", "map", "ace") if key in best})
    row = {"model": recipe.model, **figures, "l2": found.l2, "trials": trials, "weight": 1.0}
    document = {"version": 1, "folds": recipe.folds, "candidates": [row]}
    return torch.from_numpy(found.scores) if recipe.folds else None, document


def _layer_inputs(network: nn.Module, rows: Data) -> Matrix:
    """Return the inputs of the last layer: a float64 array or a float32 CSR matrix."""
    from credibly.data import SparseRows

    if isinstance(rows.encoded, SparseRows):
        return rows.encoded.matrix
    sparse = rows.sparse_features
    features = rows.features if sparse is None else sparse.matrix
    assert features is not None  # ensured by resolve
    if isinstance(network, NetworkModule):
        return network.standardize.applied(features)
    return features.astype(np.float64)


def _augmented(rows: Data, recipe: recipes.Network, seed: int) -> TorchRows:
    """Return rows to train on, with the augmentation of the recipe."""
    size = recipe.image_size if rows.kind == "images" else None
    if recipe.augment is not None and rows.kind == "images":
        rows = dataclasses.replace(rows, augmentation=recipe.augment)
    return rows.torch_dataset(
        train=True,
        image_size=size,
        seed=seed,
        operations=recipe.rand_augment,
        cutout=recipe.cutout,
        mixup=recipe.mixup,
        color_jitter=recipe.color_jitter,
        lighting=recipe.lighting,
    )


# After training ------------------------------------------------------------------------------


def _finish(job: _Job, run: Run, rows: Data, network: nn.Module, scores: Tensor | None) -> Run:
    """Fit calibrator and decision on held-out rows, then predict and measure test rows.

    If ``scores`` are given, they are out-of-fold scores of the training rows and replace the
    held-out rows.
    """
    from credibly import decide

    run.criterion.eval()
    if isinstance(rows.targets, SparseTargets):
        return _finish_many(job, run, rows, network)
    # Features are scored on the CPU, in float64 (``ready``).
    device = SingleProcess() if rows.features is not None else job.accelerator

    def scores_of(part: Data) -> Tensor:
        callback = job.callback if job.accelerator.is_main_process else Callback()
        dataset, workers = to_score(part, run.recipe), run.recipe.workers
        return score(network, dataset, device, workers, progress=callback.on_score)

    network.to(device.device)
    run.criterion.to(device.device)
    if run.criterion.has_state:  # an exact pass instead of a moving average
        train = rows.part("train")
        run.criterion.cpu()
        run.criterion.fit_state([(scores_of(train), torch.from_numpy(train.dense_targets))])
    if run.folder is not None and job.accelerator.is_main_process:
        write_model(run, run.folder)
    ready(run)
    held_out = rows.part("train" if job.all_train else "calibration")
    if scores is None and len(held_out):
        scores = scores_of(held_out)
    test = rows.part("test")
    test_scores = scores_of(test) if len(test) else None
    run.model.cpu()
    run.criterion.cpu()
    give_back()  # what scoring has freed
    if scores is not None:
        array = scores.numpy()
        if run.recipe.calibrate != "none":
            method = run.recipe.calibrate
            truth = Targets(held_out.dense_targets)
            run.pipeline.calibrate(array, truth, method, weights=held_out.weights)
        run.held_out = as_often_as_weighted(run.pipeline.probabilities(array), held_out.weights)
        size = run.recipe.average_size
        run.pipeline.decision = (
            decide.Threshold(0.5) if size is None else decide.AverageSize(size).fit(run.held_out)
        )
    predictions = None if test_scores is None else run.predictions(test, test_scores)
    return _stored(job, run, predictions, measured)


def _stored(
    job: _Job,
    run: Run,
    predictions: Predictions | None,
    measure: Callable[[Run, Predictions], JsonObject],
) -> Run:
    """Return the run with its metrics; write what is left to write."""
    if predictions is not None and job.accelerator.is_main_process:
        run.metrics = measure(run, predictions)
    if run.folder is not None and job.accelerator.is_main_process:
        write_calibration(run, run.folder)
        if predictions is not None:
            predictions.write(run.folder / "predictions.parquet")
        write_json(run.folder / METRICS, run.metrics)
        write_manifest(run.folder)  # last: it says that the run is finished
    return run


def _finish_many(job: _Job, run: Run, rows: Data, network: nn.Module) -> Run:
    """Do the same for very many labels, with only the most probable labels of each row."""
    recipe, device = run.recipe, job.accelerator.device

    def kept(part: Data) -> tuple[Array, Array, Array]:
        return top_of_rows(network, to_score(part, recipe), run.criterion, device, recipe.workers)

    run.model.eval()
    held_out, test = rows.part("calibration"), rows.part("test")
    if isinstance(held_out.targets, SparseTargets) and held_out.has_truth:
        _, odds, numbers = kept(held_out)
        hits = held_out.targets.at(numbers)
        run.pipeline.calibrator = fit_calibrator(recipe.calibrate, run.criterion, odds, hits)
    of_test = kept(test) if len(test) else None
    run.model.cpu()
    run.criterion.cpu()
    if run.folder is not None:
        write_model(run, run.folder)
    calibrator, about = run.pipeline.calibrator, run.metadata()
    predictions = None if of_test is None else top_predictions(test, of_test, calibrator, about)
    return _stored(job, run, predictions, lambda run, found: _in_json(top_measured(found)))


def measured(run: Run, predictions: Predictions) -> JsonObject:
    """Return the metrics of the test rows; NaN becomes None, which JSON can hold."""
    from credibly import metrics

    if predictions.targets is None:
        return {}
    decision = run.pipeline.decision
    sets = None if decision is None else decision.predict(predictions.probabilities)
    figures = metrics.summary(
        predictions.probabilities,
        Targets(predictions.targets),
        scores=predictions.scores,
        sets=sets,
    )
    ranked = predictions.probabilities if predictions.scores is None else predictions.scores
    figures |= _top_1_error(ranked, predictions.targets)
    return _in_json(figures)


def _top_1_error(ranked: Array, targets: Array) -> dict[str, float]:
    """Return the share of rows whose first label is wrong, where every row has just one label."""
    if not len(targets) or ranked.shape != targets.shape:
        return {}
    if not ((targets == 1).sum(1) == 1).all() or ((targets != 1) & (targets != 0)).any():
        return {}
    return {"top-1 error": float((ranked.argmax(1) != targets.argmax(1)).mean())}


def _in_json(figures: JsonObject) -> dict[str, float | None]:
    plain = {name: float(value) for name, value in figures.items()}
    return {name: None if math.isnan(value) else value for name, value in plain.items()}


# Model and loss --------------------------------------------------------------------------------

SMALLEST_LOSS = """
    class MyLoss(cr.losses.BinaryLoss):      # loss of each label on its own; the link is derived
        name = "mine"
        def positive(self, scores): return torch.nn.functional.softplus(-scores)
        def negative(self, scores): return torch.nn.functional.softplus(scores)
"""


def with_names(recipe: Recipe) -> tuple[Recipe, nn.Module | None, Loss | None]:
    """Return the recipe with its objects replaced by names, and the network and the loss, if any.

    Raises:
        InputError: if an object is not a network or a loss.
    """
    from credibly import losses

    model = None if isinstance(recipe.model, str) else recipe.model
    loss = None if isinstance(recipe.loss, str) else recipe.loss
    if model is not None:
        if not isinstance(model, nn.Module):
            raise InputError(
                f"`model` must be a name or a torch.nn.Module; got {type(model).__name__}."
            )
        recipe = dataclasses.replace(recipe, model=OBJECT + type(model).__name__)
    if loss is not None:
        if not isinstance(loss, losses.Loss):
            raise InputError(
                "`loss` must be a name, a loss of `cr.losses` or a subclass of it, because the "
                "loss also says how scores become probabilities (`log_odds`); got "
                f"{type(loss).__name__}. The smallest one:\n{SMALLEST_LOSS}"
            )
        recipe = dataclasses.replace(recipe, loss=OBJECT + type(loss).__name__)
    return recipe, model, loss


def build_loss(recipe: Recipe, data: Data, num_rows: int, loss: Loss | None = None) -> Loss:
    """Return the user's ``loss``, or the loss that the recipe names."""
    criterion = loss_of(recipe, loss, num_labels=len(data.labels), num_rows=num_rows)
    if not criterion.has_link and few_rows(data):
        raise InputError(
            f"loss {recipe.loss!r} has no link, so its scores become probabilities only through "
            f"a calibrator, which needs at least {MIN_ROWS} rows; {data.source} has fewer."
        )
    if not criterion.has_link and recipe.calibrate == "none":
        raise InputError(
            f"loss {recipe.loss!r} has no link, so its scores become probabilities only through "
            "a calibrator; got `calibrate` none. Use affine."
        )
    return criterion


def build_model(
    network: recipes.Network, data: Data, criterion: Loss, seed: int, model: nn.Module | None = None
) -> nn.Module:
    """Return the network to train: the user's, or a fresh one.

    The seed determines a fresh network. Its last biases start at the rates of the labels.
    """
    torch.manual_seed(mixed(seed))
    if model is None and network.model.startswith(OBJECT):
        raise missing_object(network.model, "model")
    num_scores = len(data.labels) * criterion.scores_per_label
    if model is None and network.model.startswith(PYTHON):
        shape = description(data, network)["shape"]
        model = build_from_factory(network.model, tuple(shape), num_scores)
    if model is not None:
        if network.features or network.frozen:
            raise InputError(
                "`frozen` and `features` need a built-in network, because its last layer is "
                f"known; got {network.model!r}. Freeze parameters with `requires_grad_(False)` "
                "instead."
            )
        check_scores(model, data, num_scores, network.image_size)
        return model
    weights = None if network.weights == "none" else network.weights  # overrides a preset's
    built = build_network(network, data, len(data.labels), criterion, weights=weights)
    if network.prior_bias:
        built.start_at_rates(criterion, data.decoded[data.split == TRAIN])
    return built


@torch.no_grad()
def check_scores(model: nn.Module, data: Data, num_scores: int, image_size: int | None) -> None:
    """Check on two rows that a user's network returns one or two scores per label."""
    data = data.take(np.arange(min(2, len(data))))
    if data.texts is not None:
        data = data.encoded_by(text_model(model).encode)
    rows = data.torch_dataset(train=False, image_size=image_size)
    inputs = rows.batch(torch.arange(len(data)))[0]
    training = model.training
    model.eval()
    try:
        scores = model(inputs)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"the network must take inputs of shape {_shapes(inputs)}; it fails: {error}."
        ) from error
    finally:
        model.train(training)
    shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if shape != (len(inputs), num_scores):
        raise InputError(
            f"the network must return scores of shape (rows, {num_scores}) for inputs of shape "
            f"{_shapes(inputs)}; got {shape}."
        )


def _shapes(inputs: Any) -> object:
    """Return the shape of the inputs, or the shapes by name if there are several."""
    if isinstance(inputs, torch.Tensor):
        return tuple(inputs.shape)
    return {name: tuple(tensor.shape) for name, tensor in inputs.items()}
