"""From data to a finished run: claim the folder, train, calibrate, predict, measure."""

from __future__ import annotations

import dataclasses
import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.files import write_json
from credibly.models.network import Network, Stack
from credibly.pipeline import Pipeline
from credibly.targets import SparseTargets, Targets
from credibly.train import assembly, linear
from credibly.train import checkpoint as checkpoints
from credibly.train.callbacks import Callback, Log, LoggingCallback
from credibly.train.configuration import Settings, is_compared
from credibly.train.distributed import SingleProcess, score, threads_for
from credibly.train.evaluation import EpochEvaluator
from credibly.train.folds import Folds
from credibly.train.linear_probe import solve_last_layer
from credibly.train.many_labels import (
    ManyLabelsEvaluator,
    check_many,
    fit_calibrator,
    top_of_rows,
    top_predictions,
)
from credibly.train.many_labels import measured as top_measured
from credibly.train.run import Run, load, write_run
from credibly.train.run_folder import (
    MANIFEST,
    METRICS,
    claimed,
    description,
    pooled,
    write_manifest,
)
from credibly.train.trainer import Trainer
from credibly.train.user_objects import name_objects
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.predictions import Predictions

SWEEP = tuple(10 ** (5 - step / 4) for step in range(45))
"""Penalties that ``sweep`` tries, strongest first: 1e-6 to 1e5, evenly spaced on a log scale."""


def fit(
    data: Data,
    folder: str | Path,
    settings: Settings | None = None,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    resume: bool = False,
    callback: Callback | None = None,
) -> Run:
    """Train on the training rows of ``data``, calibrate on held-out rows, measure on test rows.

    A run that fails before it has anything to resume from leaves nothing behind.

    Args:
        data: from ``cr.data.load``.
        folder: of the run: ``config.toml``, ``model.safetensors``, ``state/``, ``log.jsonl``,
            ``calibration.json``, ``predictions.parquet`` (test rows), ``metrics.json``,
            ``manifest.json`` (checksums).
        settings: how to train; the defaults if not given.
        model: your own network: inputs (rows, …) to scores (rows, labels), or twice as many
            columns where ``loss.scores_per_label`` is 2. It is trained in place. The folder holds
            its weights but not its code: ``cr.load(folder, model=…)`` needs the same network.
        loss: your own loss, a subclass of ``cr.losses.Loss``; ``cr.load`` then needs it too.
        resume: go on with the run in ``folder``; start where there is none.
        callback: called after each update and each epoch.

    Example:
        >>> import tempfile, credibly as cr
        >>> quick = Settings(model="linear", epochs=2)
        >>> run = fit(cr.data.synthetic(300), tempfile.mkdtemp(), quick)
        >>> run.predict(cr.data.synthetic(5).features).probabilities.shape
        (5, 20)
    """
    folder = Path(folder)
    settings = name_objects(settings or Settings(), model, loss)
    settings = assembly.resolve_settings(settings, data)
    accelerator = assembly.build_accelerator(settings)
    run = _assemble(data, folder, settings, accelerator.num_processes, model, loss)
    with nullcontext() if data.features is None else threads_for(data.features.size):
        return _fit(run, data, accelerator, resume, callback or Callback(), model, loss)


def _fit(
    run: Run,
    data: Data,
    accelerator: Accelerator | SingleProcess,
    resume: bool,
    callback: Callback,
    model: nn.Module | None,
    loss: Loss | None,
) -> Run:
    folder, settings, main = run.folder, run.settings, accelerator.is_main_process
    with claimed(folder, settings, data, resume) if main else nullcontext():
        accelerator.wait_for_everyone()
        if resume and (folder / MANIFEST).exists():
            return load(folder, model=model, loss=loss, allow_python=True)
        if is_compared(settings):
            rows = pooled(data, settings)
            crossed = _compare(run, rows, callback)
            network = run.model
        else:
            rows, network = _inputs(run, pooled(data, settings), accelerator)
            crossed = _train(run, rows, network, accelerator, callback)
        _finish(run, rows, network, accelerator, crossed)
        accelerator.wait_for_everyone()
    return run


# Training ------------------------------------------------------------------------------------


def _assemble(
    data: Data,
    folder: Path,
    settings: Settings,
    processes: int,
    model: nn.Module | None,
    loss: Loss | None,
) -> Run:
    """Return a run with its network and loss, checked against the rows."""
    about = description(data, settings)
    data = pooled(data, settings)
    train, held_out = data.part("train"), data.part("calibration")
    criterion = assembly.build_loss(settings, data, len(train), loss)
    _check_rows(train, held_out, settings, criterion, processes)
    model = assembly.build_user_model(settings, data, criterion, model)
    if model is None and is_compared(settings):
        model = Stack([])  # filled when the candidates are compared
    elif model is None:
        model = assembly.build_model(settings, data, criterion, train.targets)
    if isinstance(data.targets, SparseTargets):
        check_many(settings, data, criterion, model, processes)
    return Run(folder, settings, about, model, Pipeline(criterion))


def _check_rows(
    train: Data, held_out: Data, settings: Settings, criterion: Loss, processes: int
) -> None:
    if len(train) < max(processes, 2):
        raise InputError(
            f"{train.source} must have training rows, at least {max(processes, 2)}; "
            f"it has {len(train)}. Mark them 0 in `split`."
        )
    known, present = _counts(train.targets)
    if not known:
        raise InputError(
            f"the training rows of {train.source} must hold known labels; all {len(train):,} × "
            f"{len(train.labels):,} targets are −1 (unknown). If −1 means absent, give --coding "
            "signed."
        )
    if known == present:
        raise InputError(
            f"{train.source} must have training rows where a label is known to be absent; all "
            f"{known:,} known targets are present, so a model would learn that every label "
            "always is. If −1 means absent, give --coding signed. If only present labels were "
            "recorded, code the others 0 and use --loss an, epr or role."
        )
    if settings.frozen_epochs and processes > 1:
        raise InputError(
            f"`frozen_epochs` trains on one process only; got {processes}. Train the last layer "
            "first with `frozen`, then give its model.safetensors as `weights`."
        )
    if settings.mixup and criterion.single_label:
        raise InputError(
            f"`mixup` makes soft targets; loss {settings.loss!r} needs exactly one label per row. "
            "Use softmax or bce, or leave `mixup` out."
        )
    needed = settings.calibrate != "none" or settings.select != "last"
    if needed and not settings.folds and not held_out.has_truth:
        raise InputError(
            f"{train.source} has no held-out rows with known labels to calibrate and select on. "
            "Mark some 2 in `split`, or give --calibrate none --select last."
        )
    if criterion.single_label:
        targets = train.targets
        sparse = isinstance(targets, SparseTargets)
        counts = targets.row_counts() if sparse else (targets > 0.5).sum(axis=1)
        if (counts != 1).any():
            row = int((counts != 1).argmax())
            raise InputError(
                f"loss {settings.loss!r} needs exactly one label per row; row "
                f"{str(train.ids[row])!r} of {train.source} has {counts[row]}. "
                "Use bce or spa for many labels."
            )


def _compare(run: Run, rows: Data, callback: Callback) -> Tensor | None:
    """Train the candidates; return scores of rows by models that did not see them, if by folds."""
    from credibly.train.choice import choose, problem_of

    problem = problem_of(rows, run.criterion, run.settings)
    choice = choose(problem, run.settings, callback)
    run.model, run.candidates = choice.model, choice.document(run.settings)
    return torch.from_numpy(choice.scores) if problem.crossed else None


def _counts(targets: Array | SparseTargets) -> tuple[int, int]:
    """Return how many targets are known, and how many of them are present."""
    if isinstance(targets, SparseTargets):
        return targets.num_known, int((targets.entry_values() == 1).sum())
    return int((targets >= 0).sum()), int((targets == 1).sum())


def _inputs(
    run: Run, data: Data, accelerator: Accelerator | SingleProcess
) -> tuple[Data, nn.Module]:
    """Return the rows and the network to train: all of it, or its head on cached features."""
    data = run.encoded(data)
    if not run.settings.features:
        return data, run.model
    from credibly.models import cache_features
    from credibly.models.network import Head

    assert isinstance(run.model, Network)  # build_user_model refuses others
    keep = run.folder / "features"
    options = {name: getattr(run.settings, name) for name in ("image_size", "eval_crop", "workers")}
    run.model.to(accelerator.device)
    if accelerator.is_main_process:
        cache_features(run.model, data, keep, device=accelerator.device, **options)
    accelerator.wait_for_everyone()
    cached = cache_features(run.model, data, keep, device=accelerator.device, **options)
    return cached, Head(run.model)


def _train(
    run: Run,
    rows: Data,
    network: nn.Module,
    accelerator: Accelerator | SingleProcess,
    callback: Callback,
) -> Tensor | None:
    """Train ``network``; with ``folds``, return the scores of models that did not see the row."""
    settings, state = run.settings, run.folder / "state"
    if accelerator.is_main_process:
        callback = LoggingCallback(Log(run.folder, settings.tensorboard), callback)
    else:
        callback = Callback()
    held_out = rows.part("train" if settings.folds else "calibration")
    held_out_rows = _dataset(held_out, settings, train=False)
    if isinstance(held_out.targets, SparseTargets):
        evaluator = ManyLabelsEvaluator(settings, held_out_rows, held_out.targets)
    else:
        evaluator = EpochEvaluator(settings, held_out_rows, held_out.targets)
    if settings.solver == "lbfgs":
        return _solve(run, rows, network, callback)
    if settings.head_start and checkpoints.newest(state) is None:
        assert isinstance(network, Network)  # others are refused when settings are resolved
        plain = partial(_dataset, settings=settings, train=False)
        solve_last_layer(settings, network, run.criterion, rows, plain, accelerator, callback)
    dataset = _dataset(rows.part("train"), settings, train=True)
    trainer = Trainer(
        settings,
        network,
        run.criterion,
        dataset,
        evaluator,
        accelerator=accelerator,
        folder=state,
        callback=callback,
    )
    trainer.run()
    trainer.finish()
    return None


def _solve(run: Run, rows: Data, network: Any, callback: Callback) -> Tensor | None:
    """Solve the last layer of ``network``; with ``folds``, return the out-of-fold scores."""
    from credibly.data import CALIBRATION, TEST, TRAIN

    settings, criterion = run.settings, run.criterion
    rows = rows.take(np.flatnonzero(rows.split != TEST))
    targets = rows.dense_targets.astype(np.float64)
    if settings.folds:
        folds = Folds.crossed(targets, settings.folds, settings.split_seed)
    else:
        train, held_out = (np.flatnonzero(rows.split == part) for part in (TRAIN, CALIBRATION))
        folds = Folds([(train, held_out)])
    evaluator = EpochEvaluator(settings, None, targets[folds.scored])

    def measure(scores: Array, odds: Array) -> dict[str, float]:
        return evaluator.figures(odds, Pipeline(criterion).ranking_scores(scores))

    penalties = None if settings.l2 is None else [settings.l2]
    if settings.sweep and rows.encoded is None:
        penalties = list(SWEEP)
    found = linear.solve(
        *(_layer_inputs(network, rows), targets, criterion, folds),
        measure if len(folds.scored) else None,
        bias=network.head.bias.detach().double().numpy(),
        penalties=penalties,
        callback=callback,
        state=run.folder / "state",
    )
    found.layer.copy_to(network.head)
    return torch.from_numpy(found.scores) if settings.folds else None


def _layer_inputs(network: nn.Module, rows: Data) -> Any:
    """Return what the last layer sees of rows: an array in float64 or a CSR matrix in float32."""
    from credibly.data import SparseRows

    if isinstance(rows.encoded, SparseRows):
        return rows.encoded.matrix
    sparse = rows.sparse_features
    features = rows.features if sparse is None else sparse.matrix
    assert features is not None  # resolve_settings refuses others
    if isinstance(network, Network):
        return network.standardize.applied(features)
    return features.astype(np.float64)


def _dataset(rows: Data, settings: Settings, train: bool) -> Any:
    from credibly.data import Augment

    size = settings.image_size if rows.kind == "images" else None
    augment = Augment(
        *(settings.rand_augment, settings.cutout, settings.mixup),
        *(settings.color_jitter, settings.lighting),
    )
    if settings.augment is not None and rows.kind == "images":
        rows = dataclasses.replace(rows, augmentation=settings.augment)
    return rows.torch_dataset(*(train, size, settings.seed, augment), eval_crop=settings.eval_crop)


# After training ------------------------------------------------------------------------------


def _finish(
    run: Run,
    rows: Data,
    network: nn.Module,
    accelerator: Accelerator | SingleProcess,
    crossed: Tensor | None,
) -> None:
    """Fit calibrator and decision on held-out rows, then predict and measure test rows.

    ``crossed`` are scores of the training rows by models that did not see them, in place of
    held-out rows.
    """
    held_out, test = rows.part("calibration" if crossed is None else "train"), rows.part("test")
    run.model.eval()
    run.criterion.eval()
    if isinstance(rows.targets, SparseTargets):
        _finish_many(run, held_out, test, network, accelerator)
        return
    _finish_loss(run, rows.part("train"), network, accelerator)

    def scores_of(part: Data) -> Tensor:
        return score(
            network, _dataset(part, run.settings, train=False), accelerator, run.settings.workers
        )

    held_out_scores = crossed
    if crossed is None and len(held_out):
        held_out_scores = scores_of(held_out)
    test_scores = scores_of(test) if len(test) else None
    run.model.cpu()
    run.criterion.cpu()
    if held_out_scores is not None:
        if run.settings.calibrate != "none":
            run.pipeline.calibrate(
                held_out_scores.numpy(),
                Targets(held_out.dense_targets),
                run.settings.calibrate,
            )
        run.pipeline.decision = _decision(run, held_out_scores)
    if not accelerator.is_main_process:
        return
    write_run(run)
    if test_scores is not None:
        predictions = run.predictions(test, test_scores)
        predictions.write(run.folder / "predictions.parquet")
        run.metrics = measured(run, predictions)
    write_json(run.folder / METRICS, run.metrics)
    write_manifest(run.folder)  # last: it says that the run is finished


def _finish_many(
    run: Run,
    held_out: Data,
    test: Data,
    network: nn.Module,
    accelerator: Accelerator | SingleProcess,
) -> None:
    """Do the same for very many labels, of which each row keeps the most probable."""

    def kept(part: Data) -> tuple[Array, Array, Array]:
        dataset = _dataset(part, run.settings, train=False)
        return top_of_rows(network, dataset, run.criterion, accelerator.device, run.settings)

    if isinstance(held_out.targets, SparseTargets) and held_out.has_truth:
        _, odds, numbers = kept(held_out)
        hits = held_out.targets.at(numbers)
        run.pipeline.calibrator = fit_calibrator(run.settings, run.criterion, odds, hits)
    of_test = kept(test) if len(test) else None
    run.model.cpu()
    run.criterion.cpu()
    write_run(run)
    if of_test is not None:
        calibrator = run.pipeline.calibrator
        predictions = top_predictions(test, of_test, calibrator, run.metadata())
        predictions.write(run.folder / "predictions.parquet")
        run.metrics = {name: _plain(value) for name, value in top_measured(predictions).items()}
    write_json(run.folder / METRICS, run.metrics)
    write_manifest(run.folder)  # last: it says that the run is finished


def _finish_loss(
    run: Run, train: Data, network: nn.Module, accelerator: Accelerator | SingleProcess
) -> None:
    """Replace a running estimate in the link by an exact pass over the training rows."""
    if run.criterion.has_state:
        dataset = _dataset(train, run.settings, train=False)
        scores = score(network, dataset, accelerator, run.settings.workers)
        run.criterion.cpu()
        run.criterion.fit_state([(scores, torch.from_numpy(train.dense_targets))])


def _decision(run: Run, scores: Tensor) -> Any:
    from credibly import decide

    if run.settings.average_size is None:
        return decide.Threshold(0.5)
    return decide.AverageSize(run.settings.average_size).fit(
        run.pipeline.probabilities(scores.numpy())
    )


def measured(run: Run, predictions: Predictions) -> dict[str, Any]:
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
    return {name: _plain(value) for name, value in figures.items()}


def _top_1_error(ranked: Array, targets: Array) -> dict[str, float]:
    """Return the share of rows whose first label is wrong, where every row has just one label."""
    if not len(targets) or ranked.shape != targets.shape:
        return {}
    if (targets < 0).any() or not ((targets == 1).sum(1) == 1).all() or (targets % 1).any():
        return {}
    return {"top-1 error": float((ranked.argmax(1) != targets.argmax(1)).mean())}


def _plain(value: Any) -> float | None:
    return None if math.isnan(float(value)) else float(value)
