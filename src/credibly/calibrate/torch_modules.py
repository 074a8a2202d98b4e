"""Fitted calibrators as torch modules in float64, for export and for use on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid


class SoftClipped(nn.Module, ABC):
    """A map whose outputs are limited softly to ``floor`` and ``ceiling``."""

    floor: Tensor
    ceiling: Tensor

    def __init__(self, **numbers: object) -> None:
        super().__init__()
        for name, value in numbers.items():
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float64))

    def forward(self, log_odds: Tensor) -> Tensor:
        mapped = self.unlimited(log_odds)
        below, above = torch.relu(self.floor - mapped), torch.relu(mapped - self.ceiling)
        inside = torch.minimum(torch.maximum(mapped, self.floor), self.ceiling)
        return inside + 1 / (1 + below) - 1 / (1 + above)

    @abstractmethod
    def unlimited(self, log_odds: Tensor) -> Tensor:
        """Return the mapped log-odds before the limits."""


class AffineModule(SoftClipped):
    """slope × log-odds + intercept; one number for all labels, or one per label."""

    slope: Tensor
    intercept: Tensor

    def unlimited(self, log_odds: Tensor) -> Tensor:
        return self.slope * log_odds + self.intercept


class BetaModule(SoftClipped):
    """slope_low × log p − slope_high × log(1 − p) + intercept."""

    slope_low: Tensor
    slope_high: Tensor
    intercept: Tensor

    def unlimited(self, log_odds: Tensor) -> Tensor:
        low, high = logsigmoid(log_odds), -logsigmoid(-log_odds)
        return self.slope_low * low + self.slope_high * high + self.intercept


class InterpolationModule(nn.Module):
    """Rates interpolated between points, as log-odds."""

    points: Tensor
    rates: Tensor

    def __init__(self, points: object, rates: object) -> None:
        super().__init__()
        self.register_buffer("points", torch.as_tensor(points, dtype=torch.float64).reshape(-1))
        self.register_buffer("rates", torch.as_tensor(rates, dtype=torch.float64).reshape(-1))

    def forward(self, log_odds: Tensor) -> Tensor:
        points, rates = self.points, self.rates
        if len(points) == 1:
            return torch.logit(rates[0]).expand_as(log_odds)
        log_odds = torch.minimum(torch.maximum(log_odds, points[0]), points[-1])
        right = (log_odds[..., None] >= points).sum(-1).clamp(1, len(points) - 1)
        start, stop = points[right - 1], points[right]
        # Two points may coincide: a jump, whose right end counts.
        share = torch.where(stop > start, (log_odds - start) / (stop - start), 1.0)
        rate = rates[right - 1] + share * (rates[right] - rates[right - 1])
        return torch.log(rate) - torch.log1p(-rate)


class SoftmaxModule(nn.Module):
    """The softmax of slope × log p + bias, as log-odds; ``rest`` is the share of "no label"."""

    slope: Tensor
    biases: Tensor

    def __init__(self, slope: float, biases: object, rest: bool) -> None:
        super().__init__()
        self.rest = rest
        self.register_buffer("slope", torch.as_tensor(slope, dtype=torch.float64))
        self.register_buffer("biases", torch.as_tensor(biases, dtype=torch.float64))

    def forward(self, log_odds: Tensor) -> Tensor:
        shares = logsigmoid(log_odds).clamp(min=-700.0)
        scores = self.slope * shares + self.biases
        if self.rest:
            left = (1 - shares.exp().sum(-1, keepdim=True)).clamp(min=1e-304)
            scores = torch.cat([scores, self.slope * left.log()], -1)
        top, index = scores.max(-1, keepdim=True)
        is_top = torch.arange(scores.shape[-1], device=scores.device) == index
        others = scores.masked_fill(is_top, -torch.inf)
        rest = torch.logsumexp(others, -1, keepdim=True)
        total = torch.logaddexp(top, rest)
        odds = scores - total - torch.log1p(-torch.exp(others - total))
        return torch.where(is_top, top - rest, odds)[..., : log_odds.shape[-1]]


def module(state: Mapping[str, Any]) -> nn.Module:
    """Return the calibrator of this state as a module."""
    numbers = {name: value for name, value in state.items() if name != "calibrator"}
    name = state["calibrator"]
    if name == "none":
        return nn.Identity()
    if name == "beta":
        return BetaModule(**numbers)
    if name == "isotonic":
        return InterpolationModule(**numbers)
    if name in ("softmax-temperature", "vector"):
        return SoftmaxModule(numbers["slope"], numbers.get("biases", 0.0), bool(numbers["rest"]))
    slope, intercept = numbers["slope"], numbers.get("intercept", 0.0)
    if name == "per-label":
        slope, intercept = numbers["slopes"], numbers["intercepts"]
    limits = {"floor": numbers["floor"], "ceiling": numbers["ceiling"]}
    return AffineModule(slope=slope, intercept=intercept, **limits)
