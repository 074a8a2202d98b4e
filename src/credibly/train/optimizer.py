"""Parameter groups, the course of the learning rate, and the moving average of weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from credibly.models import Network
from credibly.train import updates
from credibly.train.configuration import Settings, highest_rate
from credibly.train.updates import Updates


def build_optimizer(
    settings: Settings, model: nn.Module, criterion: nn.Module, *, on_cpu: bool = True
) -> torch.optim.Optimizer | Updates:
    """Return SGD or AdamW. Biases, norms and the loss's own parameters are not decayed.

    Each group has a ``scale``: the factor on the learning rate of its parameters. On the CPU of
    one process both are ``Updates``, which start sooner.
    """
    groups: list[dict[str, Any]] = []
    for scale, parameters in _scaled_parameters(settings, model):
        decayed = [p for p in parameters if p.ndim > 1]
        others = [p for p in parameters if p.ndim <= 1]
        groups += [
            {"params": decayed, "weight_decay": settings.weight_decay, "scale": scale},
            {"params": others, "weight_decay": 0.0, "scale": scale},
        ]
    groups[-1]["params"] += list(criterion.parameters())
    groups = [group for group in groups if group["params"]]
    if on_cpu:
        groups = [{"lr": highest_rate(settings), **group} for group in groups]
        if settings.optimizer == "sgd":
            return updates.SGD(groups, settings.momentum, settings.nesterov)
        return updates.AdamW(groups)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            groups,
            lr=highest_rate(settings),
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
    return torch.optim.AdamW(groups, lr=highest_rate(settings))


def _scaled_parameters(
    settings: Settings, model: nn.Module
) -> list[tuple[float, list[nn.Parameter]]]:
    """Return trained parameters by the factor on their rate: 1 for the head, less below it."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(model, Network) or settings.backbone_rate == settings.layer_decay == 1:
        return [(1.0, trained)]
    layers = model.layers()
    scaled = [
        (settings.backbone_rate * settings.layer_decay ** (len(layers) - 1 - place), parameters)
        for place, parameters in enumerate(layers)
    ]
    backbone = {id(p) for parameters in layers for p in parameters}
    return [*scaled, (1.0, [p for p in trained if id(p) not in backbone])]


def learning_rate(settings: Settings, step: int, total: int) -> float:
    """Return the rate of update ``step`` of ``total``; a function, so resuming needs no state.

    Example:
        >>> course = Settings(schedule="step", milestones=(0.5,), warmup=0.0, learning_rate=0.1)
        >>> [round(learning_rate(course, step, 4), 3) for step in range(4)]
        [0.1, 0.1, 0.01, 0.01]
    """
    rising, highest = settings.warmup * total, highest_rate(settings)
    if step < rising:
        progress = (step + 1) / (rising + 1)
        if settings.schedule == "onecycle":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return highest * max(progress, 1e-3)
    done = (step - rising) / max(total - rising, 1)
    if settings.schedule in ("cosine", "onecycle"):
        return highest * max((1 + math.cos(math.pi * done)) / 2, 1e-4)
    if settings.schedule == "linear":
        return highest * max(1 - done, 1e-4)
    if settings.schedule == "step":
        drops = sum(step >= share * total for share in settings.milestones)
        return highest * 0.1**drops
    return highest


class Average:
    """Exponential moving average of a model's state: what is evaluated and kept when it is on.

    The decay rises with the number of updates, min(decay, (1+t)/(10+t)), so that the first
    epochs are not an average with the initial weights. Counts of batches and other integers are
    copied; so are numbers that are infinite from the start, such as a bound that is not in use.
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
    """Average the gradients of parameters that no DDP wrapper looks after."""
    if processes == 1:
        return
    import torch.distributed as dist

    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= processes
