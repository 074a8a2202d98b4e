"""The defaults of a recipe that depend on the data, and the checks of a recipe against the data."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from credibly.checks import InputError
from credibly.data.images import LazyImages
from credibly.data.splits import TEST, TRAIN
from credibly.data.torch_datasets import DEFAULT_SIZE
from credibly.models import efficientnet
from credibly.models.network import CONVOLUTIONAL
from credibly.targets import MANY_LABELS, SparseTargets
from credibly.train.auto import folds_for
from credibly.train.distributed import num_processes, rows_per_step
from credibly.train.linear import can_probe, solvable
from credibly.train.recipes import (
    PROBED_EPOCHS,
    Auto,
    Ensemble,
    Linear,
    Network,
    Recipe,
    Solved,
    TextLinear,
)
from credibly.train.run import OBJECT, PYTHON, loss_of
from credibly.train.run_folder import MIN_ROWS, few_rows, names_held_out

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.losses import Loss


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
    """Resolve all defaults of ``recipe`` that depend on ``data``, and check it against the data.

    Args:
        recipe: with names, not objects.
        data: the rows.
        loss: the object that ``recipe.loss`` names, if it names one.

    Example:
        >>> import credibly as cr
        >>> resolved = resolve(cr.train.Linear(), cr.data.load("synthetic", n=200))
        >>> resolved.loss, resolved.folds
        ('bce', 0)
    """
    if recipe.loss == "auto":
        recipe = dataclasses.replace(recipe, loss=default_loss(data))
    if isinstance(recipe, Auto) and not _compares(recipe, data):
        recipe = _usual(recipe, data)
    if few_rows(data):  # without held-out rows, no calibrator can be fitted
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


def default_loss(data: Data) -> str:
    """Return the loss that ``auto`` selects. benchmarks/results/defaults.md gives the reasons.

    Example:
        >>> from credibly import data
        >>> default_loss(data.digits(50)), default_loss(data.digits(50, counts=(0, 1)))
        ('bce', 'softmax')
    """
    targets = data.decoded[data.split == TRAIN]
    one_each = len(targets) > 0 and bool((targets.row_counts() == 1).all())
    return "softmax" if targets.hard and one_each and data.num_labels > 1 else "bce"


# Auto ------------------------------------------------------------------------------------------


def _compares(recipe: Auto, data: Data) -> bool:
    """Return whether models are compared. The loss must suit every candidate."""
    if data.features is None or num_processes() > 1 or few_rows(data):
        return False
    if isinstance(data.targets, SparseTargets):  # candidates need the scores of all labels
        return False
    return recipe.loss in ("bce", default_loss(data))


def _usual(recipe: Auto, data: Data) -> Recipe:
    """Return the default recipe for data on which models are not compared."""
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
            f"`folds` is for models of features and for tfidf. {data.source} is trained with a "
            "network, whose epoch is chosen on held-out rows. Leave `folds` out."
        )
    return Network(**shared)


def _usual_network(data: Data) -> str:
    """Return the name of the network that ``auto`` selects."""
    if data.kind == "features":
        return "mlp"
    if data.kind == "text":
        return "tfidf"
    if data.kind == "text+regions":
        raise InputError(
            f"{data.source} holds questions with image regions. Name a network that takes both, "
            "e.g. --model hf:FOLDER with LXMERT."
        )
    shape = data.input_shape
    return "cnn" if shape and max(shape[1:]) <= SMALL_IMAGE else "efficientnet-lite0"


# Networks --------------------------------------------------------------------------------------


def _network(recipe: Network, data: Data, loss: Loss | None) -> Network:
    model, weights = recipe.model, recipe.weights
    if model == "auto":
        model = _usual_network(data)
        weights = "auto" if model == "efficientnet-lite0" and weights is None else weights
    if weights == "auto":
        efficientnet.weights_file()  # fails before any data is read
    recipe = dataclasses.replace(recipe, model=model, weights=weights)
    if data.sparse_features is not None:
        recipe = _on_sparse_features(recipe, data)
    if recipe.views != "one" and data.kind != "images":
        raise InputError(
            f"`views` {recipe.views} needs images; {data.source} holds {data.kind}. Use "
            "`views` one."
        )
    if recipe.mixup and data.texts is not None:
        raise InputError(
            f"`mixup` mixes features or images; {data.source} holds {data.kind}. Leave it out."
        )
    if recipe.features and model == "tfidf":
        raise InputError(
            "`features` stores the output of a backbone, but tfidf has no backbone. Leave it out."
        )
    start = _probe_first(recipe, data, loss)
    if isinstance(data.images, LazyImages) and model in CONVOLUTIONAL and not recipe.image_size:
        recipe = _sized(recipe, _stored_size(data.images), start)
    # If norms use statistics of small batches, the features change and a solved last layer no
    # longer fits them. From a random last layer, fixed norms bring no gain.
    norms = start if recipe.fixed_norms is None else recipe.fixed_norms
    recipe = dataclasses.replace(recipe, probe_first=start, fixed_norms=norms)
    return dataclasses.replace(
        recipe,
        batch_size=rows_per_step(recipe.batch_size, int((data.split == TRAIN).sum())),
        epochs=recipe.num_epochs,
        patience=(2 if start else 0) if recipe.patience is None else recipe.patience,
        select="last" if few_rows(data) else recipe.select,  # no rows to select an epoch
        learning_rate=recipe.highest_rate,
    )


def _sized(recipe: Network, stored: int, start: bool) -> Network:
    """Return the recipe with the size of images, and with epochs that cost the same at any size.

    Pretrained features are much better at the size of the pretraining, so smaller images are
    enlarged. They then take fewer epochs: about as much time as five epochs at their own size.
    """
    if not start:
        return dataclasses.replace(recipe, image_size=stored)
    epochs = recipe.epochs or max(1, round(PROBED_EPOCHS * (stored / DEFAULT_SIZE) ** 2))
    return dataclasses.replace(recipe, image_size=DEFAULT_SIZE, epochs=epochs)


def _stored_size(images: LazyImages, sample: int = 32) -> int:
    """Return 224, or the shorter side of the images if it is smaller."""
    rows = np.unique(np.linspace(0, len(images) - 1, sample).astype(int)) if len(images) else []
    sides = [min(images[int(row)].shape[:2]) for row in rows]
    return int(min(DEFAULT_SIZE, max(np.median(sides), 32))) if sides else DEFAULT_SIZE


def _probe_first(recipe: Network, data: Data, loss: Loss | None) -> bool:
    """Return whether the last layer is solved first. Raise if a required probe is impossible."""
    pretrained = recipe.weights not in (None, "none") and not recipe.frozen
    usual = data.kind == "images" and pretrained
    if not (usual if recipe.probe_first is None else recipe.probe_first):
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
            "a loss with one score per label and without parameters or state of its own, whose "
            f"gradient belongs to its value; got {recipe.loss!r}"
        )
    if problem is not None and recipe.probe_first:
        raise InputError(f"`probe_first` needs {problem}. Leave it out.")
    return problem is None


def _on_sparse_features(recipe: Network, data: Data) -> Network:
    """Return the recipe for sparse features. Raise if it needs a dense matrix."""
    assert data.input_shape is not None
    what = f"{data.source} holds {data.input_shape[0]:,} sparse features"
    if recipe.model not in ("linear", "mlp"):
        raise InputError(f"{what}, which `model` linear and mlp take; got {recipe.model!r}.")
    if recipe.mixup:
        raise InputError(f"{what}; `mixup` needs a dense matrix. Leave it out.")
    many = isinstance(data.targets, SparseTargets) or len(data.labels) >= MANY_LABELS
    if recipe.model == "linear" and many:
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
    """Raise for data and losses whose last layer cannot be solved."""
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
            f"{data.source} has {data.num_labels:,} labels as sparse targets. A linear model "
            "cannot be solved for them. Use --model mlp, which has a hidden layer."
        )
    sparse = data.sparse_features
    if sparse is not None and sparse.shape[1] * len(data.labels) > SOLVED_WEIGHTS:
        raise InputError(
            f"{data.source} would need {sparse.shape[1] * len(data.labels):,} weights, more than "
            f"the {SOLVED_WEIGHTS:,} that are solved at once. Use --model mlp. {steps}"
        )
    if not _solvable(recipe, data, loss):
        raise InputError(
            f"the last layer cannot be solved for loss {recipe.loss!r}, because the loss has "
            "parameters or state of its own, or its gradient does not belong to its value. "
            f"{steps}"
        )


def _solvable(recipe: Recipe, data: Data, loss: Loss | None) -> bool:
    return solvable(loss_of(recipe, loss, num_labels=len(data.labels), num_rows=len(data)))


def _check_compared(recipe: Recipe, data: Data) -> None:
    """Raise for data and losses that forests, boosting and ensembles do not support."""
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
    """Return the number of folds. ``None`` selects a default; a given number is checked."""
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
            f"{data.source} has held-out rows, which `folds` would replace; got `folds` "
            f"{recipe.folds}. Leave `folds` out, or mark these rows as training rows."
        )
    if recipe.folds > rows / 2:
        raise InputError(
            f"`folds` must be at most half the number of rows to train on, {rows}; "
            f"got {recipe.folds}."
        )
    return recipe.folds
