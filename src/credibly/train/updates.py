"""AdamW and SGD by torch's functional forms.

``torch.optim.Optimizer`` imports torch's compiler with the first object: 1.4 s of CPU and 70 MB,
which a small table does not pay back. The arithmetic is torch's own, so the weights are the same
bit for bit; checkpoints of either are read by the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd


class Updates(ABC):
    """The part of ``torch.optim.Optimizer`` that training uses, for parameters on the CPU.

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

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups
        self.state: dict[int, dict[str, Any]] = {}
        count = 0
        self._indices: list[list[int]] = []
        for group in groups:
            self._indices.append(list(range(count, count + len(group["params"]))))
            count += len(group["params"])

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        for group, indices in zip(self.param_groups, self._indices, strict=True):
            moved = [
                (parameter, self.state.setdefault(index, {}))
                for parameter, index in zip(group["params"], indices, strict=True)
                if parameter.grad is not None
            ]
            if moved:
                parameters, states = zip(*moved, strict=True)
                gradients = [parameter.grad for parameter in parameters]
                self._move(group, list(parameters), gradients, list(states))

    @abstractmethod
    def _move(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        """Move parameters of one group by their gradients; ``states`` hold what is remembered."""

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return state and groups as ``torch.optim.Optimizer`` does."""
        groups = [
            {**group, "params": indices}
            for group, indices in zip(self.param_groups, self._indices, strict=True)
        ]
        return {"state": self.state, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over the state of the parameters; the groups stay as they are."""
        self.state = {
            index: {
                name: value.clone() if isinstance(value, Tensor) else value
                for name, value in state.items()
            }
            for index, state in saved["state"].items()
        }


class AdamW(Updates):
    """AdamW with the constants of ``torch.optim.AdamW``."""

    def _move(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            foreach=False,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=1e-8,
            maximize=False,
        )


class SGD(Updates):
    """Stochastic gradient descent with momentum."""

    def __init__(self, groups: list[dict[str, Any]], momentum: float, nesterov: bool) -> None:
        super().__init__(groups)
        self.momentum, self.nesterov = momentum, nesterov

    def _move(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[dict[str, Any]],
    ) -> None:
        buffers: list[Tensor | None] = [state.get("momentum_buffer") for state in states]
        sgd(
            parameters,
            gradients,
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
