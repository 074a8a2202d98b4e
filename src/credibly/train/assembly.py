"""From data and a recipe to the parts of a run: the resolved recipe, model, loss, accelerator."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from credibly.checks import InputError
from credibly.data.splits import TEST, TRAIN
from credibly.models.text import build_text
from credibly.targets import MANY_LABELS, SparseTargets
from credibly.train.batches import mixed, rows_per_step
from credibly.train.distributed import SingleProcess
from credibly.train.linear import solvable
from credibly.train.linear_probe import can_probe
from credibly.train.recipes import (
    Auto,
    Ensemble,
    Linear,
    Network,
    Recipe,
    Solved,
    TextLinear,
)
from credibly.train.run_folder import MIN_ROWS, description, few_rows, names_held_out
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
    from credibly.models.network import Network as NetworkModule

SMALL_IMAGE = 64
SPARSE_HIDDEN = (96, 512)
SPARSE_WEIGHTS = 20_000_000
"""Of ``mlp`` on sparse features: least and largest width of the hidden layer, and the number of
weights of the first layer that it is made for, in steps of 32 units."""

FEW_ROWS_L2 = 30.0
"""Penalty where there are too few rows to choose it."""

SOLVED_WEIGHTS = 10_000_000
"""Most weights of ``linear`` on sparse features that are solved: each fold keeps two copies."""


def resolve(recipe: Recipe, data: Data, loss: Loss | None = None) -> Recipe:
    """Return ``recipe`` with all that ``data`` decide filled in, checked against them.

    Args:
        recipe: with names, not objects.
        data: the rows.
        loss: the object that ``recipe.loss`` names, where there is one.
    """
    if recipe.loss == "auto":
        recipe = dataclasses.replace(recipe, loss=default_loss(data))
    if isinstance(recipe, Auto) and not _compares(recipe, data):
        recipe = _usual(recipe, data)
    if few_rows(data):  # nothing is held out to calibrate on
        recipe = dataclasses.replace(recipe, calibrate="none")
    if recipe.average_size is not None and recipe.average_size > len(data.labels):
        raise InputError(
            f"`average_size` must be at most the number of labels, {len(data.labels)}; "
            f"got {recipe.average_size:g}."
        )
    if isinstance(recipe, Network):
        return _network(recipe, data, loss)
    if isinstance(recipe, Solved):
        _check_solved(recipe, data, loss)
    else:
        _check_compared(recipe, data)
    recipe = dataclasses.replace(recipe, folds=_folds(recipe, data))
    if isinstance(recipe, Solved) and recipe.l2 is None and few_rows(data):
        recipe = dataclasses.replace(recipe, l2=FEW_ROWS_L2)
    return recipe


def num_processes() -> int:
    """Return the number of processes that torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


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


# Auto ------------------------------------------------------------------------------------------


def _compares(recipe: Auto, data: Data) -> bool:
    """Return whether models are compared: with a loss that every candidate can be trained for."""
    if data.features is None or num_processes() > 1 or few_rows(data):
        return False
    if isinstance(data.targets, SparseTargets):  # candidates need the scores of all labels
        return False
    return recipe.loss in ("bce", default_loss(data))


def _usual(recipe: Auto, data: Data) -> Recipe:
    """Return the recipe that is usual for data on which models are not compared."""
    solved: type[TextLinear] | type[Linear] | None = None
    if data.kind == "text":
        solved = TextLinear
    elif data.features is not None and few_rows(data) and num_processes() == 1:
        solved = Linear
    shared = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(Recipe)}
    if solved is not None and _solvable(recipe, data, None):
        return solved(**shared, folds=recipe.folds)
    if recipe.folds:
        raise InputError(
            f"`folds` belongs to models for features and to tfidf; a network is trained on "
            f"{data.source}, and rows held out choose its epoch. Leave `folds` out."
        )
    return Network(**shared)


def _usual_network(data: Data) -> str:
    """Return the name of the network that ``auto`` stands for."""
    if data.kind == "features":
        return "mlp"
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


# Networks --------------------------------------------------------------------------------------


def _network(recipe: Network, data: Data, loss: Loss | None) -> Network:
    model = _usual_network(data) if recipe.model == "auto" else recipe.model
    recipe = dataclasses.replace(recipe, model=model)
    if data.sparse_features is not None:
        recipe = _on_sparse_features(recipe, data)
    if recipe.views != "one" and data.kind != "images":
        raise InputError(
            f"`views` {recipe.views} needs images; {data.source} holds {data.kind}. Use one."
        )
    if recipe.mixup and data.texts is not None:
        raise InputError(
            f"`mixup` mixes features or images; {data.source} holds {data.kind}. Leave it out."
        )
    if recipe.features and model == "tfidf":
        raise InputError("`features` caches a backbone's output; tfidf has none. Leave it out.")
    start = _head_start(recipe, data, loss)
    # A last layer that fits the features as they are loses that when norms take statistics of
    # small batches instead; from a random last layer fixed norms gain nothing.
    norms = start if recipe.fixed_norms is None else recipe.fixed_norms
    size = rows_per_step(recipe.batch_size, int((data.split == TRAIN).sum()))
    recipe = dataclasses.replace(recipe, batch_size=size, head_start=start, fixed_norms=norms)
    if few_rows(data):  # nothing is held out to judge epochs by
        recipe = dataclasses.replace(recipe, select="last")
    return dataclasses.replace(recipe, learning_rate=recipe.highest_rate)


def _head_start(recipe: Network, data: Data, loss: Loss | None) -> bool:
    """Return whether the last layer is solved first; refuse a wish that cannot be met."""
    wanted = recipe.head_start
    if wanted is None:
        pretrained = recipe.weights not in (None, "none") and not recipe.frozen
        wanted = data.kind == "images" and pretrained
    if not wanted:
        return False
    problem = None
    if loss is not None or recipe.model.startswith((OBJECT, PYTHON)):
        problem = "a built-in network and loss; got your own"
    elif isinstance(data.targets, SparseTargets) or len(data.labels) >= MANY_LABELS:
        problem = f"fewer than {MANY_LABELS:,} labels; got {len(data.labels):,}"
    elif not data.part("calibration").has_truth:
        problem = (
            f"held-out rows with known labels, which choose its penalty; {data.source} has none"
        )
    elif not can_probe(loss_of(recipe, None, num_labels=len(data.labels), num_rows=len(data))):
        problem = (
            "a loss with one score per label, no memory of its own and a gradient that is that of "
            f"its value; got {recipe.loss!r}"
        )
    if problem is not None and recipe.head_start:
        raise InputError(f"`head_start` needs {problem}. Leave it out.")
    return problem is None


def _on_sparse_features(recipe: Network, data: Data) -> Network:
    """Return the recipe for sparse features; refuse what needs a dense matrix."""
    assert data.input_shape is not None
    what = f"{data.source} holds {data.input_shape[0]:,} sparse features"
    if recipe.model not in ("linear", "mlp"):
        raise InputError(f"{what}, which `model` linear and mlp take; got {recipe.model!r}.")
    if recipe.mixup:
        raise InputError(f"{what}; `mixup` needs a dense matrix. Leave it out.")
    if recipe.model == "linear" and len(data.labels) >= MANY_LABELS:
        raise InputError(
            f"{what} and {len(data.labels):,} labels: a linear model would have a weight for each "
            "pair of them. Use --model mlp, which goes through a hidden layer."
        )
    if recipe.model == "linear" or recipe.hidden is not None:
        return recipe
    least, most = SPARSE_HIDDEN
    width = min(max(SPARSE_WEIGHTS // data.input_shape[0] // 32 * 32, least), most)
    return dataclasses.replace(recipe, hidden=width)


# Solved and compared models --------------------------------------------------------------------


def _check_solved(recipe: Solved, data: Data, loss: Loss | None) -> None:
    """Refuse data and losses whose last layer cannot be solved."""
    steps = f"To train it by steps, give an option of Network: --model {recipe.model} --epochs 30."
    if isinstance(recipe, Linear) and data.kind != "features":
        raise InputError(
            f"`model` linear is solved on features; {data.source} holds {data.kind}. Take those of "
            f"a network: --model timm:NAME --probe; on texts, --model tfidf. {steps}"
        )
    if isinstance(recipe, TextLinear) and data.kind != "text":
        raise InputError(f"`model` tfidf takes texts; {data.source} holds {data.kind}.")
    if num_processes() > 1:
        raise InputError(
            f"`model` {recipe.model} is solved on one process only; got {num_processes()}. {steps}"
        )
    if isinstance(data.targets, SparseTargets):
        raise InputError(
            f"{data.source} has {data.num_labels:,} labels as sparse targets, for which a linear "
            "model is not solved. Use --model mlp, which goes through a hidden layer."
        )
    sparse = data.sparse_features
    if sparse is not None and sparse.shape[1] * len(data.labels) > SOLVED_WEIGHTS:
        raise InputError(
            f"{data.source} would need {sparse.shape[1] * len(data.labels):,} weights, more than "
            f"the {SOLVED_WEIGHTS:,} that are solved at once. Use --model mlp. {steps}"
        )
    if not _solvable(recipe, data, loss):
        raise InputError(
            f"loss {recipe.loss!r} has no minimum in the weights alone: it learns or remembers "
            f"something of its own, or its gradient is not that of its value. {steps}"
        )


def _solvable(recipe: Recipe, data: Data, loss: Loss | None) -> bool:
    return solvable(loss_of(recipe, loss, num_labels=len(data.labels), num_rows=len(data)))


def _check_compared(recipe: Recipe, data: Data) -> None:
    """Refuse data and losses that forests, boosting and ensembles do not take."""
    what = "`ensemble`" if isinstance(recipe, Ensemble) else f"`model` {recipe.model}"
    if data.kind != "features":
        raise InputError(
            f"{what} takes features; {data.source} holds {data.kind}. Use a network, or the "
            "features of one: `cr.models.cache_features`."
        )
    if data.sparse_features is not None:
        raise InputError(
            f"{data.source} holds {data.sparse_features.shape[1]:,} sparse features, which `model` "
            f"linear and mlp take; got {what}."
        )
    if num_processes() > 1:
        raise InputError(f"{what} trains on one process only; got {num_processes()}.")
    if recipe.loss not in ("bce", default_loss(data)):
        raise InputError(
            f"{what} is trained by log loss: `loss` bce, or softmax where each row has exactly "
            f"one label; got {recipe.loss!r}. Use --model mlp alone for other losses."
        )


def _folds(recipe: Recipe, data: Data) -> int:
    """Return the number of folds that ``None`` stands for; check a given one against the data."""
    from credibly.train.auto import folds_for

    rows = int((data.split != TEST).sum())
    if recipe.folds is None:
        if names_held_out(data):
            return 0
        if not isinstance(recipe, Solved):
            return folds_for(recipe, data)
        chosen = recipe.penalties is not None and len(recipe.penalties) == 1
        wanted = not chosen or recipe.calibrate != "none"
        return (3 if isinstance(recipe, TextLinear) else 5) if wanted and rows >= MIN_ROWS else 0
    if recipe.folds and names_held_out(data):
        raise InputError(
            f"`folds` replaces held-out rows, and {data.source} names some; got {recipe.folds}. "
            "Leave `folds` out, or mark those rows as training rows."
        )
    if recipe.folds > rows / 2:
        raise InputError(
            f"`folds` must be at most half the number of rows to train on, {rows}; "
            f"got {recipe.folds}."
        )
    return recipe.folds


# Model and loss --------------------------------------------------------------------------------


def build_loss(recipe: Recipe, data: Data, num_rows: int, loss: Loss | None = None) -> Loss:
    """Return the user's ``loss``, or the one that the recipe names."""
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
    network: Network,
    data: Data,
    criterion: Loss,
    train_targets: Array | SparseTargets,
    seed: int,
) -> NetworkModule:
    """Return a fresh model, the same for the same seed, its last biases at the labels' rates."""
    from credibly import models

    torch.manual_seed(mixed(seed))
    weights = None if network.weights == "none" else network.weights  # overrides a preset's
    num_outputs = criterion.num_outputs(len(data.labels))
    if data.texts is not None:
        model = build_text(
            network.model,
            data,
            num_outputs,
            dropout=network.dropout,
            terms=network.terms,
            max_length=network.max_length,
            frozen=network.frozen,
            weights=weights,
        )
    else:
        options = {"dropout": network.dropout, "hidden": network.hidden, "weights": weights}
        options |= {"image_size": network.image_size}
        model = models.build(
            network.model,
            data,
            len(data.labels),
            num_outputs=num_outputs,
            frozen=network.frozen,
            fixed_norms=bool(network.fixed_norms),
            views=network.views,
            **{name: value for name, value in options.items() if value is not None},
        )
    if network.prior_bias:
        set_prior_bias(model.head, criterion, train_targets)
    return model


def build_user_model(
    recipe: Network, data: Data, criterion: Loss, model: nn.Module | None, seed: int
) -> nn.Module | None:
    """Return the user's network, from an object or a ``python:`` factory; None if neither."""
    num_scores = len(data.labels) * criterion.scores_per_label
    if model is None:
        if recipe.model.startswith(OBJECT):
            raise missing_object(recipe.model, "model")
        if not recipe.model.startswith(PYTHON):
            return None
        torch.manual_seed(mixed(seed))
        shape = description(data, recipe)["shape"]
        model = build_from_factory(recipe.model, tuple(shape), num_scores)
    if recipe.features or recipe.frozen:
        raise InputError(
            "`frozen` and `features` need a built-in network, whose last layer is known; got "
            f"{recipe.model!r}. Freeze parameters by `requires_grad_(False)` instead."
        )
    check_scores(model, data, num_scores, recipe.image_size)
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


def build_accelerator(precision: str) -> Accelerator | SingleProcess:
    """Return device, processes (from torchrun's environment) and precision."""
    if precision == "fp16" and not torch.cuda.is_available():
        raise InputError("`precision` fp16 needs a GPU; got none. Use bf16 or float32.")
    no_gpu = not (torch.cuda.is_available() or torch.backends.mps.is_available())
    processes = num_processes()
    if no_gpu and processes == 1 and precision == "float32":
        return SingleProcess()  # accelerate is slow to import
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # Two runs in one interpreter may differ in precision; accelerate keeps the first one's.
    AcceleratorState._reset_state()
    kind = "no" if precision == "float32" else precision
    # Without cpu=True accelerate ignores torchrun's other processes on a machine without a GPU.
    return Accelerator(mixed_precision=kind, cpu=no_gpu)
