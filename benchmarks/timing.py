"""How to time: in turns, by CPU time, the median; wall time on a shared machine is noise."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping


def in_turns(
    cases: Mapping[str, Callable[[], object]], repeats: int = 15, at_least: float = 0.005
) -> dict[str, list[float]]:
    """CPU seconds a call of every case, ``repeats`` times each, in an order drawn anew each round.

    A measurement repeats its call until ``at_least`` seconds are filled.
    """
    calls = {name: _calls_for(case, at_least) for name, case in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    order, draw = list(cases), random.Random(0)
    for _ in range(repeats):
        draw.shuffle(order)
        for name in order:
            seconds[name].append(_time(cases[name], calls[name]))
    return seconds


def median(seconds: list[float]) -> float:
    """The middle measurement."""
    return statistics.median(seconds)


def ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """Median over rounds of what ``name`` took, as a multiple of what ``base`` took."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))


def _calls_for(case: Callable[[], object], at_least: float) -> int:
    for _ in range(3):  # compile, fill caches
        case()
    return max(1, round(at_least / max(_time(case, 1), 1e-7)))


def _time(case: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        case()
    return (time.process_time() - start) / calls
