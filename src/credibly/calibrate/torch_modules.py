"""Fitted calibrators as torch modules in float64, for export and for use on a device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from credibly.types import JsonObject


class CalibratorModule(nn.Module):
    """The map of a calibrator, with the parameters of its state as float64 buffers."""

    def __init__(self, state: JsonObject) -> None:
        super().__init__()
        self.map = _MAPS[state["calibrator"]]
        self.switches = {"rest": True} if state.get("rest") else {}
        self.numbers = [name for name in state if name not in ("calibrator", "rest")]
        for name in self.numbers:
            self.register_buffer(name, torch.as_tensor(state[name], dtype=torch.float64))

    def forward(self, log_odds: Tensor) -> Tensor:
        numbers = {name: getattr(self, name) for name in self.numbers}
        return self.map(log_odds, **numbers, **self.switches)


def _soft_clip(log_odds: Tensor, floor: Tensor, ceiling: Tensor) -> Tensor:
    below, above = torch.relu(floor - log_odds), torch.relu(log_odds - ceiling)
    inside = torch.minimum(torch.maximum(log_odds, floor), ceiling)
    return inside + 1 / (1 + below) - 1 / (1 + above)


def _affine(
    g: Tensor, slope: Tensor, floor: Tensor, ceiling: Tensor, intercept: Tensor | float = 0.0
):
    return _soft_clip(slope * g + intercept, floor, ceiling)


def _per_label(g: Tensor, slopes: Tensor, intercepts: Tensor, floor: Tensor, ceiling: Tensor, **_):
    return _soft_clip(slopes * g + intercepts, floor, ceiling)


def _beta(g: Tensor, slope_low: Tensor, slope_high: Tensor, intercept: Tensor, **limits: Tensor):
    low, high = logsigmoid(g), -logsigmoid(-g)
    return _soft_clip(slope_low * low + slope_high * high + intercept, **limits)


def _isotonic(g: Tensor, points: Tensor, rates: Tensor) -> Tensor:
    if len(points) == 1:
        return torch.logit(rates[0]).expand_as(g)
    g = torch.minimum(torch.maximum(g, points[0]), points[-1])
    right = (g[..., None] >= points).sum(-1).clamp(1, len(points) - 1)
    start, stop = points[right - 1], points[right]
    # Two points may coincide and form a jump; the value at a jump is the right one.
    share = torch.where(stop > start, (g - start) / (stop - start), 1.0)
    rate = rates[right - 1] + share * (rates[right] - rates[right - 1])
    return torch.log(rate) - torch.log1p(-rate)


def _softmax(g: Tensor, slope: Tensor, biases: Tensor | float = 0.0, rest: bool = False) -> Tensor:
    shares = logsigmoid(g).clamp(min=-700.0)
    scores = slope * shares + biases
    if rest:
        left = (1 - shares.exp().sum(-1, keepdim=True)).clamp(min=1e-304)
        scores = torch.cat([scores, slope * left.log()], -1)
    top, index = scores.max(-1, keepdim=True)
    is_top = torch.arange(scores.shape[-1], device=scores.device) == index
    others = scores.masked_fill(is_top, -torch.inf)
    total_rest = torch.logsumexp(others, -1, keepdim=True)
    total = torch.logaddexp(top, total_rest)
    odds = scores - total - torch.log1p(-torch.exp(others - total))
    return torch.where(is_top, top - total_rest, odds)[..., : g.shape[-1]]


_MAPS: dict[str, Callable[..., Tensor]] = {
    "none": lambda g: g,
    "temperature": _affine,
    "affine": _affine,
    "per-label": _per_label,
    "beta": _beta,
    "isotonic": _isotonic,
    "softmax-temperature": _softmax,
    "vector": _softmax,
}
