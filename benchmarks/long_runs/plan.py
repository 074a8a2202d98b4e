"""The plan as data, and the next unit: one that has no record and whose choices are made.

A setup names data, settings and trainings. A training is a list of epochs at which its scores are
read; the last one is its length. Trials train for ``trial_epochs`` on the split of ``TRIAL_SEED``
and look at held-out rows only. First they choose the learning rate of each training. The grid grows
by a step of half a power of ten until the best rate lies inside. A single rate needs no trial. Then
they choose among the ``variants`` of a loss at that rate, the weight of a regularizer for example.
Then come the seeds.

This module needs Python alone, so that the queue runs before any environment is made.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.long_runs.records import Record

TRIAL_SEED = 0
RATES_BETWEEN = (1e-6, 10.0)
"""The grid of rates grows no further than this."""

Records = Mapping[str, Record]


@dataclasses.dataclass(frozen=True)
class Unit:
    """One process: trainings of one loss and one seed, or a trial of them."""

    id: str
    setup: str
    method: str
    data: str
    settings: dict[str, Any]
    trainings: list[dict[str, Any]]
    seed: int
    trial: bool
    minutes: float
    experiment: str = ""


@dataclasses.dataclass(frozen=True)
class Method:
    """A loss of a setup, with what its trials choose among."""

    name: str
    loss: str
    variants: Sequence[str] = ()
    like: str | None = None
    """The method whose rates it takes over."""
    by: str = "nll"
    """The held-out metric to choose by; of ``nll`` the lowest, of others the highest."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Data, settings and trainings that all methods of a setup share."""

    name: str
    data: str
    settings: Mapping[str, Any]
    trainings: Sequence[Sequence[int]]
    trial_epochs: Sequence[int]
    rates: Sequence[float]
    seeds: Sequence[int]
    trial_minutes: float
    minutes: float


class Plan:
    """The queue of ``long_runs.toml``."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.commit: str | None = document.get("commit")
        self.setups = {
            name: Setup(name=name, **values) for name, values in document["setups"].items()
        }
        self.methods = {
            name: Method(name=name, **values) for name, values in document["methods"].items()
        }
        self.queue = [
            (block["experiment"], self.setups[block["setup"]], block["methods"])
            for block in document["queue"]
        ]

    @classmethod
    def read(cls, path: Path) -> Plan:
        return cls(tomllib.loads(path.read_text(encoding="utf-8")))

    def units(self, records: Records) -> Iterator[Unit]:
        """Every unit that is determined by now, in the order of the queue, done or not."""
        for experiment, setup, names in self.queue:
            methods, units = [self.methods[name] for name in names], []
            for method in methods:
                units += self._trials(setup, method, records)
            for seed in setup.seeds:
                for method in methods:
                    chosen = self._chosen(setup, method, records)
                    if chosen is not None:
                        units.append(_unit(setup, method, chosen, seed))
            yield from (dataclasses.replace(unit, experiment=experiment) for unit in units)

    def remaining(self, records: Records) -> Iterator[Unit]:
        """Units without a record, those included whose choices are not made yet.

        What is not determined yet stands there with the first rate and variant; a grid that will
        grow is not foreseen.
        """
        for experiment, setup, names in self.queue:
            methods, units = [self.methods[name] for name in names], []
            for method in methods:
                units += self._trials(setup, method, records)
                if method.variants and self._rates(setup, method, records) is None:
                    first = [setup.rates[0]] * len(setup.trainings)
                    units += _variant_trials(setup, method, first)
            for seed in setup.seeds:
                for method in methods:
                    first = [(setup.rates[0], method.loss)] * len(setup.trainings)
                    units.append(_unit(setup, method, first, seed))
            for unit in units:
                if unit.id not in records:
                    yield dataclasses.replace(unit, experiment=experiment)

    # Trials ----------------------------------------------------------------------------------

    def _trials(self, setup: Setup, method: Method, records: Records) -> Iterator[Unit]:
        if method.like is None and len(setup.rates) > 1:
            yield from _rate_trials(setup, method, records)
        rates = self._rates(setup, method, records)
        if method.variants and rates is not None:
            yield from _variant_trials(setup, method, rates)

    def _rates(self, setup: Setup, method: Method, records: Records) -> list[float] | None:
        """The best rate of each training, where all trials of it have a record."""
        if method.like is not None:
            return self._rates(setup, self.methods[method.like], records)
        if len(setup.rates) == 1:
            return [setup.rates[0]] * len(setup.trainings)
        trials = list(_rate_trials(setup, method, records))
        best = _best(trials, records, method.by)
        if best is None:
            return None
        return [trials[k].trainings[place]["learning_rate"] for place, k in enumerate(best)]

    def _chosen(
        self, setup: Setup, method: Method, records: Records
    ) -> list[tuple[float, str]] | None:
        """The rate and the loss of each training."""
        rates = self._rates(setup, method, records)
        if rates is None:
            return None
        if not method.variants:
            return [(rate, method.loss) for rate in rates]
        best = _best(list(_variant_trials(setup, method, rates)), records, method.by)
        if best is None:
            return None
        return [(rate, method.variants[k]) for rate, k in zip(rates, best, strict=True)]


def _rate_trials(setup: Setup, method: Method, records: Records) -> Iterator[Unit]:
    """Trials of every rate of the grid, and of those beside it where the best is at an edge."""
    steps = sorted({_step(rate) for rate in setup.rates})
    low, high = (_step(rate) for rate in RATES_BETWEEN)
    while True:
        trials = [
            _trial(setup, method, f"rate={_rate(k):g}", [(_rate(k), method.loss)]) for k in steps
        ]
        best = _best(trials, records, method.by)
        if best is None:
            break
        wider = [min(steps) - 1] * (0 in best) + [max(steps) + 1] * (len(steps) - 1 in best)
        wider = [k for k in wider if low <= k <= high]
        if not wider:
            break
        steps = sorted([*steps, *wider])
    yield from trials


def _variant_trials(setup: Setup, method: Method, rates: Sequence[float]) -> Iterator[Unit]:
    for loss in method.variants:
        yield _trial(setup, method, loss, [(rate, loss) for rate in rates])


def _best(trials: Sequence[Unit], records: Records, by: str) -> list[int] | None:
    """The place of the best trial for each training; None while a trial has no record."""
    found = [records.get(trial.id) for trial in trials]
    if not all(found):
        return None
    costs = [_costs(record, by) for record in found if record]
    return [min(range(len(costs)), key=lambda k: costs[k][place]) for place in range(len(costs[0]))]


def _costs(record: Record, by: str) -> list[float]:
    """The metric to choose by of each training, lower is better; infinite where it failed."""
    if "failed" in record:
        return [math.inf] * len(record["trainings"])
    values = [training["reads"][-1]["held_out"][by] for training in record["results"]]
    return [math.inf if value is None else value if by == "nll" else -value for value in values]


def _step(rate: float) -> int:
    """The number of a rate in the series … 1e-4, 3e-4, 1e-3 …."""
    return round(2 * math.log10(rate))


def _rate(step: int) -> float:
    return float(f"{10 ** (step / 2):.0e}")


# Units ---------------------------------------------------------------------------------------


def _trial(setup: Setup, method: Method, what: str, chosen: Sequence[tuple[float, str]]) -> Unit:
    if len(chosen) == 1:
        chosen = [*chosen] * len(setup.trial_epochs)
    unit = _unit(setup, method, chosen, TRIAL_SEED)
    trainings = [
        {**training, "reads": [epochs]}
        for training, epochs in zip(unit.trainings, setup.trial_epochs, strict=True)
    ]
    return dataclasses.replace(
        unit,
        id=f"{setup.name}/{method.name}/trial/{what}",
        trainings=trainings,
        trial=True,
        minutes=setup.trial_minutes,
    )


def _unit(setup: Setup, method: Method, chosen: Sequence[tuple[float, str]], seed: int) -> Unit:
    return Unit(
        id=f"{setup.name}/{method.name}/seed={seed}",
        setup=setup.name,
        method=method.name,
        data=setup.data,
        settings={**setup.settings, **method.settings},
        trainings=[
            {"reads": list(reads), "learning_rate": rate, "loss": loss}
            for reads, (rate, loss) in zip(setup.trainings, chosen, strict=True)
        ],
        seed=seed,
        trial=False,
        minutes=setup.minutes,
    )
