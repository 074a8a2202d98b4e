"""A user's own network and loss: objects in a recipe, and factories named ``python:…``.

``object:NAME``                        stands in a configuration for an object that was passed in
``python:package.module:factory``      names a function that returns the network

A factory runs code, so one is imported only where the user names it: by ``--model``, by their own
configuration file, or by ``allow_python=True`` when a run is loaded.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from credibly.checks import InputError
from credibly.train.recipes import Recipe
from credibly.types import Array

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.data.token_rows import Encoded
    from credibly.losses import Loss

OBJECT, PYTHON = "object:", "python:"

SMALLEST_LOSS = """
    class MyLoss(cr.losses.BinaryLoss):      # loss of each label on its own; the link is derived
        name = "mine"
        def positive(self, scores): return torch.nn.functional.softplus(-scores)
        def negative(self, scores): return torch.nn.functional.softplus(scores)
"""


def with_names(recipe: Recipe) -> tuple[Recipe, nn.Module | None, Loss | None]:
    """Return the recipe with names for the objects in it, the network and the loss, if any.

    Raises:
        InputError: if an object is not a network or a loss.
    """
    from credibly import losses

    model, loss = recipe.model, recipe.loss
    if not isinstance(model, str):
        if not isinstance(model, nn.Module):
            raise InputError(
                f"`model` must be a name or a torch.nn.Module; got {type(model).__name__}."
            )
        recipe = dataclasses.replace(recipe, model=OBJECT + type(model).__name__)
    if not isinstance(loss, str):
        if not isinstance(loss, losses.Loss):
            raise InputError(
                "`loss` must be a name, a loss of `cr.losses` or a subclass of it, because the "
                "loss also says how scores become probabilities (`log_odds`); got "
                f"{type(loss).__name__}. The smallest one:\n{SMALLEST_LOSS}"
            )
        recipe = dataclasses.replace(recipe, loss=OBJECT + type(loss).__name__)
    return (
        recipe,
        None if isinstance(model, str) else model,
        None if isinstance(loss, str) else loss,
    )


def missing_object(name: str, what: str) -> InputError:
    """Return the error for a configuration that stands for an object nobody passed in."""
    return InputError(
        f"this run was trained with a {what} object ({name.removeprefix(OBJECT)}), which a folder "
        f"cannot hold. Pass the same kind of object: `cr.load(folder, {what}=…)`, or put it into "
        f"the recipe to go on training."
    )


def refuse_python(name: str) -> InputError:
    """Return the error for a run that names code while nobody allowed to import it."""
    return InputError(
        f"this run names code to import ({name}). Only if you trust it: "
        "`cr.load(folder, allow_python=True)` or --allow-python; or pass the network itself, "
        "`cr.load(folder, model=…)`."
    )


def build_from_factory(name: str, shape: tuple[int, ...], num_scores: int) -> nn.Module:
    """Import ``python:package.module:factory`` and return ``factory(shape, num_scores)``."""
    _, _, rest = name.partition(":")
    module_name, _, factory_name = rest.partition(":")
    if not (module_name and factory_name.isidentifier()):
        raise InputError(
            f"`model` must read python:package.module:factory; got {name!r}, e.g. "
            "python:mypackage.networks:build."
        )
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"`model` {name!r}: {module_name!r} cannot be imported ({error}). Install it, or put "
            "its folder on PYTHONPATH."
        ) from error
    if factory_name not in vars(module):
        raise InputError(f"`model` {name!r}: {module_name} has no {factory_name!r}.")
    try:
        model = vars(module)[factory_name](tuple(shape), num_scores)
    except TypeError as error:
        raise InputError(
            f"`model` {name!r}: it is called as {factory_name}(input_shape, num_scores), here "
            f"{factory_name}({tuple(shape)}, {num_scores}); {error}."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(
            f"`model` {name!r} must return a torch.nn.Module; got {type(model).__name__}."
        )
    return model


@runtime_checkable
class TextModel(Protocol):
    """What a network for texts has beside ``forward``."""

    def encode(self, texts: Array) -> Encoded:
        """Return rows of tensors for texts of shape (rows, columns)."""
        ...

    def write_encoder(self, folder: Path) -> None:
        """Write into ``folder`` what ``encode`` needs beside the weights."""
        ...

    def read_encoder(self, folder: Path) -> None:
        """Read what ``write_encoder`` wrote, when a run is loaded."""
        ...


def text_model(model: nn.Module) -> TextModel:
    """Return ``model`` as a network for texts.

    Raises:
        InputError: if it lacks a method that such a network has.
    """
    if not isinstance(model, TextModel):
        raise InputError(
            "a network for texts must have the methods `encode(texts)`, `write_encoder(folder)` "
            f"and `read_encoder(folder)`; {type(model).__name__} lacks one. docs/guide/data.md has "
            "a small example."
        )
    return model


@torch.no_grad()
def check_scores(model: nn.Module, data: Data, num_scores: int, image_size: int | None) -> None:
    """Check on two rows that a user's network returns one score per label (or two)."""
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
    """Return the shape of inputs; of several by name, that of each."""
    if isinstance(inputs, torch.Tensor):
        return tuple(inputs.shape)
    return {name: tuple(tensor.shape) for name, tensor in inputs.items()}


def loss_of(recipe: Recipe, loss: Loss | None, **context: object) -> Loss:
    """Return the loss object, or the loss that the recipe names."""
    from credibly import losses

    if loss is not None:
        return loss
    if recipe.loss.startswith(OBJECT):
        raise missing_object(recipe.loss, "loss")
    return losses.from_name(recipe.loss, average_size=recipe.average_size, **context)
