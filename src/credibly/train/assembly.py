"""From data and settings to the parts of a run: model, loss, first biases, accelerator."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from credibly.checks import InputError
from credibly.data import CALIBRATION, TEST, TRAIN
from credibly.models.text import build_text
from credibly.targets import MANY_LABELS, SparseTargets
from credibly.train.batches import mixed, rows_per_step
from credibly.train.configuration import (
    DECIDES_FREELY,
    HEADS,
    Settings,
    highest_rate,
    trained_by_steps,
)
from credibly.train.distributed import SingleProcess
from credibly.train.linear import solvable
from credibly.train.linear_probe import can_probe
from credibly.train.run_folder import description
from credibly.train.user_objects import (
    OBJECT,
    PYTHON,
    build_from_factory,
    check_scores,
    loss_of,
    missing_object,
)
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.models.network import Network

SMALL_IMAGE = 64
SPARSE_HIDDEN = (96, 512)
SPARSE_WEIGHTS = 20_000_000
"""Of ``mlp`` on sparse features: least and largest width of the hidden layer, and the number of
weights of the first layer that it is made for, in steps of 32 units."""

FOLDS = {"tfidf": 3, "linear": 5}
MIN_ROWS_TO_FOLD = 20

SOLVED_WEIGHTS = 10_000_000
"""Most weights of ``linear`` on sparse features that are solved: each fold keeps two copies."""


def resolve_settings(settings: Settings, data: Data) -> Settings:
    """Return ``settings`` with loss, model and batch size resolved, checked against ``data``."""
    loss = default_loss(data) if settings.loss == "auto" else settings.loss
    if data.sparse_features is not None:
        settings = _resolve_sparse(settings, data)
    if compares(settings, data):
        return _resolve_comparison(settings, loss, data)
    model = settings.model
    if model == "auto":
        model = _default_model(settings, data)
    settings = dataclasses.replace(settings, **_solver(settings, model, loss, data))
    settings = dataclasses.replace(settings, folds=_folds(settings, model, data))
    solvable = data.kind == "features" or model == "tfidf" or settings.features
    if settings.solver == "lbfgs" and not solvable:
        raise InputError(
            f"`solver` lbfgs needs features; {data.source} holds {data.kind}. Train on those of a "
            "network: --model timm:NAME --frozen --features; on texts, --model tfidf."
        )
    _check_average_size(settings, data)
    if settings.views != "one" and data.kind != "images":
        raise InputError(
            f"`views` {settings.views} needs images; {data.source} holds {data.kind}. Use one."
        )
    if settings.mixup and data.texts is not None:
        raise InputError(
            f"`mixup` mixes features or images; {data.source} holds {data.kind}. Leave it out."
        )
    if settings.features and model == "tfidf":
        raise InputError("`features` caches a backbone's output; tfidf has none. Leave it out.")
    size = rows_per_step(settings.batch_size, int((data.split == TRAIN).sum()))
    settings = dataclasses.replace(settings, loss=loss, model=model, batch_size=size)
    start = _head_start(settings, data)
    # A last layer that fits the features as they are loses that when norms take statistics of
    # small batches instead; from a random last layer fixed norms gain nothing.
    norms = start if settings.fixed_norms is None else settings.fixed_norms
    settings = dataclasses.replace(settings, head_start=start, fixed_norms=norms)
    return dataclasses.replace(settings, learning_rate=highest_rate(settings))


def _head_start(settings: Settings, data: Data) -> bool:
    """Return whether the last layer is solved first; refuse a wish that cannot be met."""
    wanted = settings.head_start
    if wanted is None:
        pretrained = settings.weights not in (None, "none") and not settings.frozen
        wanted = data.kind == "images" and pretrained
    if not wanted:
        return False
    problem = None
    own = settings.loss.startswith(OBJECT) or settings.model.startswith((OBJECT, PYTHON))
    if own:
        problem = "a built-in network and loss; got your own"
    elif isinstance(data.targets, SparseTargets) or len(data.labels) >= MANY_LABELS:
        problem = f"fewer than {MANY_LABELS:,} labels; got {len(data.labels):,}"
    elif not data.part("calibration").has_truth:
        problem = (
            f"held-out rows with known labels, which choose its penalty; {data.source} has none"
        )
    elif not can_probe(loss_of(settings, None, num_labels=len(data.labels), num_rows=len(data))):
        problem = (
            "a loss with one score per label, no memory of its own and a gradient that is that of "
            f"its value; got {settings.loss!r}"
        )
    if problem is not None and settings.head_start:
        raise InputError(f"`head_start` needs {problem}. Leave it out.")
    return problem is None


def _resolve_sparse(settings: Settings, data: Data) -> Settings:
    """Return settings for sparse features; refuse what needs a dense matrix."""
    assert data.input_shape is not None
    what = f"{data.source} holds {data.input_shape[0]:,} sparse features"
    model = "mlp" if settings.model == "auto" else settings.model
    if model not in ("linear", "mlp") or settings.ensemble:
        raise InputError(f"{what}, which `model` linear and mlp take; got {settings.model!r}.")
    if settings.mixup:
        raise InputError(f"{what}; `mixup` needs a dense matrix. Leave it out.")
    if model == "linear" and len(data.labels) >= MANY_LABELS:
        raise InputError(
            f"{what} and {len(data.labels):,} labels: a linear model would have a weight for each "
            "pair of them. Use --model mlp, which goes through a hidden layer."
        )
    width = settings.hidden
    if model == "mlp" and width is None:
        least, most = SPARSE_HIDDEN
        width = min(max(SPARSE_WEIGHTS // data.input_shape[0] // 32 * 32, least), most)
    return dataclasses.replace(settings, model=model, hidden=width)


def compares(settings: Settings, data: Data) -> bool:
    """Return whether models for features are compared on rows they did not see.

    ``model`` auto does so unless a setting of networks is given, and with a loss that every
    candidate can be trained for; ``forest`` and ``boosting`` choose their size that way.
    """
    if settings.model in HEADS or settings.ensemble:
        return True
    if settings.model != "auto" or data.kind != "features" or num_processes() > 1:
        return False
    if isinstance(data.targets, SparseTargets):  # candidates need the scores of all labels
        return False
    if settings.loss not in ("auto", "bce", default_loss(data)):
        return False
    own, usual = (
        dataclasses.replace(each, learning_rate=highest_rate(each))
        for each in (settings, Settings())
    )
    return all(
        getattr(own, field.name) == getattr(usual, field.name)
        for field in dataclasses.fields(Settings)
        if field.name not in DECIDES_FREELY
    )


def num_processes() -> int:
    """Return the number of processes that torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _resolve_comparison(settings: Settings, loss: str, data: Data) -> Settings:
    from credibly.train.choice import folds_for

    name = settings.model
    what = f"`ensemble` of `model` {name}" if settings.ensemble else f"`model` {name}"
    if data.kind != "features":
        raise InputError(
            f"{what} takes features; {data.source} holds {data.kind}. Use a network, or the "
            "features of one: `cr.models.cache_features`."
        )
    if name not in ("auto", "linear", "mlp", *HEADS):
        raise InputError(f"`ensemble` takes `model` auto, linear, mlp, forest or boosting; {name}.")
    if num_processes() > 1:
        raise InputError(f"{what} trains on one process only; got {num_processes()}.")
    if loss not in ("bce", default_loss(data)):
        raise InputError(
            f"{what} is trained by log loss: `loss` bce, or softmax where each row has exactly "
            f"one label; got {loss!r}. Use --model mlp alone for other losses."
        )
    _check_average_size(settings, data)
    settings = dataclasses.replace(settings, loss=loss, head_start=False, fixed_norms=False)
    folds = folds_for(settings, data) if settings.folds is None else settings.folds
    settings = dataclasses.replace(settings, folds=folds)
    _folds(settings, name, data)
    return settings


def _check_average_size(settings: Settings, data: Data) -> None:
    if settings.average_size is not None and settings.average_size > len(data.labels):
        raise InputError(
            f"`average_size` must be at most the number of labels, {len(data.labels)}; "
            f"got {settings.average_size:g}."
        )


def _solver(settings: Settings, model: str, loss: str, data: Data) -> dict[str, Any]:
    """Return the solver that ``auto`` stands for, with what belongs to it.

    Linear models are solved to the optimum of an L2 penalty that rows not trained on choose, which
    was much better than steps of AdamW. An option of networks asks for steps, and so do losses
    without a minimum in the scores alone.
    """
    if settings.solver != "auto":
        return {}
    if model not in FOLDS or settings.dropout or loss.startswith(OBJECT) or num_processes() > 1:
        return {"solver": "steps"}
    if model == "linear":
        large = data.sparse_features is not None and (
            data.sparse_features.shape[1] * len(data.labels) > SOLVED_WEIGHTS
        )
        many = isinstance(data.targets, SparseTargets)
        if data.kind != "features" or trained_by_steps(settings) or large or many:
            return {"solver": "steps"}
    named = dataclasses.replace(settings, loss=loss)
    criterion = loss_of(named, None, num_labels=len(data.labels), num_rows=len(data))
    return {"solver": "lbfgs" if solvable(criterion) else "steps"}


def _folds(settings: Settings, model: str, data: Data) -> int:
    """Return the number of folds that ``None`` stands for; check a given one against the data."""
    held_out, rows = (data.split == CALIBRATION).any(), int((data.split != TEST).sum())
    if settings.folds is None:
        wanted = settings.l2 is None or settings.calibrate != "none"
        usual = model in FOLDS and settings.solver == "lbfgs" and data.drawn
        return FOLDS[model] if usual and wanted and rows >= MIN_ROWS_TO_FOLD else 0
    if settings.folds and held_out and not data.drawn:
        raise InputError(
            f"`folds` replaces held-out rows, and {data.source} names some; got {settings.folds}. "
            "Leave `folds` out, or mark those rows as training rows."
        )
    if settings.folds > rows / 2:
        raise InputError(
            f"`folds` must be at most half the number of rows to train on, {rows}; "
            f"got {settings.folds}."
        )
    return settings.folds


def default_loss(data: Data) -> str:
    """Return the loss that ``auto`` stands for; benchmarks/results/defaults.md gives the reasons.

    Example:
        >>> from credibly import data
        >>> default_loss(data.digits(50)), default_loss(data.digits(50, counts=(0, 1)))
        ('bce', 'softmax')
    """
    targets = data.targets[data.split == TRAIN]
    if isinstance(targets, SparseTargets):
        hard, counts = targets.hard, targets.row_counts()
    else:
        hard, counts = bool(np.isin(targets, (0, 1)).all()), targets.sum(axis=1)
    one_each = len(targets) > 0 and bool((counts == 1).all())  # nothing soft, nothing unknown
    return "softmax" if hard and one_each and data.num_labels > 1 else "bce"


def _default_model(settings: Settings, data: Data) -> str:
    if data.kind == "features":
        return "linear" if settings.solver == "lbfgs" or settings.l2 is not None else "mlp"
    if data.kind == "text":
        return "tfidf"
    if data.kind == "text+regions":
        raise InputError(
            f"{data.source} holds questions with regions of images; name a network for both, e.g. "
            "--model hf:FOLDER of LXMERT."
        )
    shape = data.input_shape
    if shape is not None and max(shape[1:]) <= SMALL_IMAGE:
        return "cnn"
    raise InputError(
        f"{data.source} holds images larger than {SMALL_IMAGE} pixels; name a network for them, "
        "e.g. --model efficientnet-lite0 or timm:resnet50."
    )


def build_loss(settings: Settings, data: Data, num_rows: int, loss: Loss | None = None) -> Loss:
    """Return the user's ``loss``, or the one that the settings name."""
    criterion = loss_of(settings, loss, num_labels=len(data.labels), num_rows=num_rows)
    if not criterion.has_link and settings.calibrate == "none":
        raise InputError(
            f"loss {settings.loss!r} has no link, so its scores become probabilities only through "
            "a calibrator; got `calibrate` none. Use affine."
        )
    return criterion


def build_model(
    settings: Settings, data: Data, criterion: Loss, train_targets: Array | SparseTargets
) -> Network:
    """Return a fresh model, the same for the same seed, its last biases at the labels' rates."""
    from credibly import models

    torch.manual_seed(mixed(settings.seed))
    options: dict[str, Any] = {
        name: getattr(settings, name)
        for name in ("dropout", "hidden", "weights", "image_size")
        if getattr(settings, name) is not None
    }
    if options.get("weights") == "none":  # overrides the weights of a preset
        del options["weights"]
    num_outputs = criterion.num_outputs(len(data.labels))
    if data.texts is not None:
        model = build_text(
            settings.model,
            data,
            num_outputs,
            dropout=settings.dropout,
            terms=settings.terms,
            max_length=settings.max_length,
            frozen=settings.frozen,
            weights=options.get("weights"),
        )
        if settings.prior_bias:
            set_prior_bias(model.head, criterion, train_targets)
        return model
    model = models.build(
        settings.model,
        data,
        len(data.labels),
        num_outputs=num_outputs,
        frozen=settings.frozen,
        fixed_norms=bool(settings.fixed_norms),
        views=settings.views,
        **options,
    )
    if settings.prior_bias:
        set_prior_bias(model.head, criterion, train_targets)
    return model


def build_user_model(
    settings: Settings, data: Data, criterion: Loss, model: nn.Module | None
) -> nn.Module | None:
    """Return the user's network, from an object or a ``python:`` factory; None if neither."""
    num_scores = len(data.labels) * criterion.scores_per_label
    if model is None:
        if settings.model.startswith(OBJECT):
            raise missing_object(settings.model, "model")
        if not settings.model.startswith(PYTHON):
            return None
        torch.manual_seed(mixed(settings.seed))
        shape = description(data, settings)["shape"]
        model = build_from_factory(settings.model, tuple(shape), num_scores)
    if settings.features or settings.frozen or settings.solver != "steps":
        raise InputError(
            "`frozen`, `features` and `solver` lbfgs need a built-in network, whose last layer is "
            f"known; got {settings.model!r}. Freeze parameters by `requires_grad_(False)` instead."
        )
    check_scores(model, data, num_scores, settings.image_size)
    return model


@torch.no_grad()
def set_prior_bias(head: Any, criterion: Loss, targets: Array | SparseTargets) -> None:
    """Set the biases of the last layer so that probabilities start at the labels' rates.

    The rates are smoothed by half a row present and half a row absent.
    """
    if isinstance(targets, SparseTargets):
        present, count = targets.label_counts(), targets.known_counts()
    else:
        known = targets >= 0
        present, count = np.where(known, targets, 0).sum(axis=0), known.sum(axis=0)
    rates = torch.from_numpy((present + 0.5) / (count + 1.0))
    # Without a link any increasing map of the rates will do: only differences count.
    initial = criterion.initial_scores(rates) if criterion.has_link else torch.logit(rates)
    if initial.shape == head.bias.shape:
        head.bias.copy_(initial)


def build_accelerator(settings: Settings) -> Accelerator | SingleProcess:
    """Return device, processes (from torchrun's environment) and precision."""
    if settings.precision == "fp16" and not torch.cuda.is_available():
        raise InputError("`precision` fp16 needs a GPU; got none. Use bf16 or float32.")
    no_gpu = not (torch.cuda.is_available() or torch.backends.mps.is_available())
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if no_gpu and processes == 1 and settings.precision == "float32":
        return SingleProcess()  # accelerate is slow to import
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # Two runs in one interpreter may differ in precision; accelerate keeps the first one's.
    AcceleratorState._reset_state()
    precision = "no" if settings.precision == "float32" else settings.precision
    # Without cpu=True accelerate ignores torchrun's other processes on a machine without a GPU.
    return Accelerator(mixed_precision=precision, cpu=no_gpu)
