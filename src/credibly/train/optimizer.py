"""Optimizers, parameter groups, learning-rate schedules and averages of weights.

The first object of ``torch.optim.Optimizer`` imports torch's compiler: 1.4 s of CPU and 70 MB, too
much for a small table. Our AdamW and SGD call torch's functional forms instead. The weights are
identical bit for bit, and each can read the checkpoints of the other.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from credibly.models.network import NetworkModule
from credibly.train import recipes
from credibly.types import JsonObject

Group: TypeAlias = JsonObject
"""Parameters with their rate and decay, or what is remembered of one."""


class Updates(ABC):
    """The part of ``torch.optim.Optimizer`` that training needs, for parameters on the CPU.

    Args:
        groups: with ``params``, ``lr`` and ``weight_decay``.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> updates = SGD([{"params": [weight], "lr": 0.5, "weight_decay": 0.0}], 0.0, False)
        >>> weight.sum().backward()
        >>> updates.step()
        >>> weight.tolist()
        [0.5, 0.5]
    """

    def __init__(self, groups: list[Group]) -> None:
        self.param_groups = groups
        self.state: dict[int, Group] = {}
        numbers = itertools.count()
        self._indices = [[next(numbers) for _ in group["params"]] for group in groups]

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        for group, indices in zip(self.param_groups, self._indices, strict=True):
            moved = [
                (parameter, self.state.setdefault(index, {}))
                for parameter, index in zip(group["params"], indices, strict=True)
                if parameter.grad is not None
            ]
            if moved:
                self._move(group, [each for each, _ in moved], [state for _, state in moved])

    @abstractmethod
    def _move(self, group: Group, parameters: list[Tensor], states: list[Group]) -> None:
        """Update parameters of one group by their gradients; ``states`` hold moments and counts."""

    def zero_grad(self) -> None:
        """Set the gradients to None."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def state_dict(self) -> JsonObject:
        """Return state and groups in the format of ``torch.optim.Optimizer``."""
        groups = [
            {**group, "params": indices}
            for group, indices in zip(self.param_groups, self._indices, strict=True)
        ]
        return {"state": self.state, "param_groups": groups}

    def load_state_dict(self, saved: JsonObject) -> None:
        """Load the state of the parameters. The groups do not change."""
        self.state = {
            index: {
                name: value.clone() if isinstance(value, Tensor) else value
                for name, value in state.items()
            }
            for index, state in saved["state"].items()
        }


class AdamW(Updates):
    """AdamW with the constants of ``torch.optim.AdamW``; or Adam, with decay in the gradient."""

    def __init__(self, groups: list[Group], decoupled: bool = True) -> None:
        super().__init__(groups)
        self.decoupled = decoupled

    def _move(self, group: Group, parameters: list[Any], states: list[Group]) -> None:
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        gradients, decay = [each.grad for each in parameters], group["weight_decay"]
        if decay and not self.decoupled:
            pairs = zip(gradients, parameters, strict=True)
            gradients, decay = [g.add(p, alpha=decay) for g, p in pairs], 0.0
        # One pass over the memory instead of a dozen. It pairs entries by their place in memory,
        # and a restored state does not have the strides of channels_last weights.
        fused = all(
            each.is_contiguous() and each.device.type == "cpu" for each in (*parameters, *gradients)
        )
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            fused=fused,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=group["lr"],
            weight_decay=decay,
            eps=1e-8,
            maximize=False,
        )


class SGD(Updates):
    """Stochastic gradient descent with momentum."""

    def __init__(self, groups: list[Group], momentum: float, nesterov: bool) -> None:
        super().__init__(groups)
        self.momentum, self.nesterov = momentum, nesterov

    def _move(self, group: Group, parameters: list[Any], states: list[Group]) -> None:
        buffers: list[Tensor | None] = [state.get("momentum_buffer") for state in states]
        sgd(
            parameters,
            [each.grad for each in parameters],
            buffers,
            foreach=False,
            weight_decay=group["weight_decay"],
            momentum=self.momentum,
            lr=group["lr"],
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
        )
        if self.momentum:
            for state, buffer in zip(states, buffers, strict=True):
                state["momentum_buffer"] = buffer


def build_optimizer(
    recipe: recipes.Network, model: nn.Module, criterion: nn.Module, *, on_cpu: bool = True
) -> torch.optim.Optimizer | Updates:
    """Return SGD, Adam or AdamW. Biases, norms and the parameters of the loss are not decayed.

    Each group has a ``scale``: the factor on the learning rate of its parameters. On the CPU of one
    process, SGD and AdamW are ``Updates``, which are faster to create.
    """
    groups: list[Group] = []
    for scale, parameters in _scaled_parameters(recipe, model):
        shared = {"lr": recipe.highest_rate, "scale": scale}
        decayed = [p for p in parameters if p.ndim > 1]
        others = [p for p in parameters if p.ndim <= 1]
        groups += [
            {"params": decayed, "weight_decay": recipe.weight_decay, **shared},
            {"params": others, "weight_decay": 0.0, **shared},
        ]
    groups[-1]["params"] += list(criterion.parameters())
    groups = [group for group in groups if group["params"]]
    if on_cpu:
        if recipe.optimizer == "sgd":
            return SGD(groups, recipe.momentum, recipe.nesterov)
        return AdamW(groups, recipe.optimizer == "adamw")
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.nesterov)
    return torch.optim.AdamW(groups) if recipe.optimizer == "adamw" else torch.optim.Adam(groups)


def _scaled_parameters(
    recipe: recipes.Network, model: nn.Module
) -> list[tuple[float, list[nn.Parameter]]]:
    """Return trained parameters by the factor on their rate: 1 for the head, less below."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(model, NetworkModule) or recipe.backbone_rate == recipe.layer_decay == 1:
        return [(1.0, trained)]
    layers = model.layers()
    scaled = [
        (recipe.backbone_rate * recipe.layer_decay ** (len(layers) - 1 - place), parameters)
        for place, parameters in enumerate(layers)
    ]
    backbone = {id(p) for parameters in layers for p in parameters}
    return [*scaled, (1.0, [p for p in trained if id(p) not in backbone])]


def learning_rate(recipe: recipes.Network, step: int, total: int) -> float:
    """Return the learning rate of update ``step`` of ``total``. It has no state to resume.

    Example:
        >>> options = {"schedule": "step", "milestones": (0.5,), "warmup": 0.0}
        >>> course = recipes.Network(learning_rate=0.1, **options)
        >>> [round(learning_rate(course, step, 4), 3) for step in range(4)]
        [0.1, 0.1, 0.01, 0.01]
    """
    rising, highest = recipe.warmup * total, recipe.highest_rate
    if step < rising:
        progress = (step + 1) / (rising + 1)
        if recipe.schedule == "onecycle":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return highest * max(progress, 1e-3)
    done = (step - rising) / max(total - rising, 1)
    if recipe.schedule in ("cosine", "onecycle"):
        return highest * max((1 + math.cos(math.pi * done)) / 2, 1e-4)
    if recipe.schedule == "linear":
        return highest * max(1 - done, 1e-4)
    if recipe.schedule == "step":
        drops = sum(step >= share * total for share in recipe.milestones)
        return highest * 0.1**drops
    return highest


class Average:
    """Exponential moving average of a model's state, which is evaluated and kept if it is enabled.

    The decay increases with the number t of updates, min(decay, (1+t)/(10+t)), so the initial
    weights do not dominate the first epochs. Integers such as counts of batches are copied. Numbers
    that are infinite at the start are copied too, such as a bound that is not in use.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._averaged = {
            name
            for name, tensor in self.state.items()
            if tensor.is_floating_point() and bool(tensor.isfinite().all())
        }

    @torch.no_grad()
    def update(self, model: nn.Module, updates: int) -> None:
        decay = min(self.decay, (1 + updates) / (10 + updates))
        for name, tensor in model.state_dict().items():
            if name in self._averaged:
                self.state[name].lerp_(tensor, 1 - decay)
            else:
                self.state[name].copy_(tensor)


def average_gradients(parameters: Iterable[Tensor], processes: int) -> None:
    """Average the gradients of parameters that DDP does not wrap."""
    if processes == 1:
        return
    import torch.distributed as dist

    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= processes


def flatten_optimizer(
    optimizer: torch.optim.Optimizer | Updates,
) -> tuple[dict[str, Tensor], JsonObject]:
    """Return state tensors by ``index.name``, and the numbers of the state that are not tensors."""
    tensors: dict[str, Tensor] = {}
    numbers: JsonObject = {}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            target = tensors if isinstance(value, Tensor) else numbers
            target[f"{index}.{name}"] = value
    return tensors, numbers


def restore_optimizer(
    optimizer: torch.optim.Optimizer | Updates,
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, object],
) -> None:
    """Undo ``flatten_optimizer``; learning rates and decays of ``optimizer`` do not change."""
    state: dict[int, JsonObject] = {}
    for key, value in {**tensors, **numbers}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
