"""Compare several losses on one data set, each with several seeds on the same rows."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from credibly import decide, metrics, train
from credibly.checks import InputError, at_least
from credibly.child_processes import in_processes
from credibly.files import sweep, write_json
from credibly.metrics.summaries import MIN_COUNT
from credibly.notebook import counted, number_table
from credibly.pipeline import Pipeline
from credibly.predictions import Predictions
from credibly.targets import SparseTargets, Targets
from credibly.train import Auto, Network, Recipe, fit
from credibly.train.defaults import resolve
from credibly.train.fitting import build_loss
from credibly.types import FilePath, JsonObject
from credibly.untrusted.documents import read_json_object

if TYPE_CHECKING:
    from credibly.data import Data
    from credibly.train import Run

LEVEL = 0.95
_ADVICE = "Remove it to compute it again."
Figure = dict[str, float]
"""A metric of one loss: ``mean`` and, where there is an interval, ``low`` and ``high``."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Test metrics of several losses, with intervals.

    Attributes:
        data: the source of the rows.
        fingerprint: hash of the rows.
        test_rows: number of test rows.
        average_size: average number of labels per set.
        seeds: number of runs per loss.
        interval: what the intervals vary: seeds or rows, in words.
        losses: for each loss and metric, ``mean``, ``low`` and ``high``.
        runs: for each run, every metric.
    """

    data: str
    fingerprint: str
    test_rows: int
    average_size: float
    seeds: int
    interval: str
    losses: dict[str, dict[str, Figure]]
    runs: dict[str, JsonObject]

    def to_dict(self) -> JsonObject:
        """Return the content of ``results.json``."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def _repr_html_(self) -> str:
        """Return the means as a table, for notebooks."""
        means = {
            loss: {name: figure["mean"] for name, figure in figures.items()}
            for loss, figures in self.losses.items()
        }
        caption = f"{self.data}: {self.test_rows:,} test rows, {counted(self.seeds, 'seed')}"
        return number_table(caption, means, note=f"Intervals: {self.interval}.")

    def __repr__(self) -> str:
        rows, seeds = f"{self.test_rows:,} test rows", counted(self.seeds, "seed")
        lines = [f"Comparison on {self.data}: {rows}, {seeds}"]
        for loss, figures in self.losses.items():
            listed = (f"{name} {figures[name]['mean']:.4f}" for name in ("mAP@y", "ACE", "NLL"))
            lines.append(f"  {loss}: {', '.join(listed)}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run of a comparison."""

    source: str
    options: JsonObject
    folder: str
    recipe: Recipe
    seed: int
    threads: int
    conditions: int


def compare(
    source: str,
    out: FilePath,
    losses: Sequence[str],
    *,
    seeds: int = 3,
    recipe: Recipe | str | None = None,
    jobs: int = 1,
    threads: int | None = None,
    conditions: int = 3,
    data_options: JsonObject | None = None,
    done: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Train every loss with every seed on the same split, and compare the test metrics.

    Finished runs are kept and interrupted runs are resumed. After a crash, make the same call
    again. Runs differ only in loss and seed. Intervals are over seeds (Student's t) or, with one
    seed, over test rows (bootstrap); ``interval`` of the result says which.

    Args:
        source: data, as for ``cr.data.load``; each worker process reads it.
        out: a folder. It gets ``results.json``, and ``runs/`` with one run folder per loss and
            seed.
        losses: names, as for ``cr.losses.from_name``.
        seeds: number of runs per loss, with seeds 0, 1, ….
        recipe: how to train; its loss is replaced. For features, ``Auto`` means a network,
            which can be trained with every loss. Without ``average_size``, sets have on average
            as many labels as training rows have, rounded up.
        jobs: number of processes that train at the same time.
        threads: math threads of each run; by default the cores divided by the jobs. A fixed
            number gives the same bits on other machines and with other ``jobs``.
        conditions: maximum number of conditions of the queries in retrieval metrics.
        data_options: keyword arguments for ``cr.data.load``.
        done: called with the name of each finished run.

    Returns:
        The table; ``to_dict()`` is the content of ``results.json``.

    Raises:
        InputError: if a loss is unknown, or if ``out`` contains a comparison on other data.

    Example:
        >>> import credibly as cr
        >>> result = cr.compare("synthetic", "compared", ["bce", "spa"], seeds=1,
        ...     recipe=cr.train.Linear(l2=1.0), data_options={"n": 200})
        >>> list(result.losses), result.test_rows
        (['bce', 'spa'], 60)
    """
    at_least("seeds", seeds, 1)
    at_least("jobs", jobs, 1)
    names = list(dict.fromkeys(losses))
    if not names:
        raise InputError("`losses` must name at least one loss, e.g. bce,spa+lpr; got none.")
    out = Path(out)
    how = train.recipe("auto" if recipe is None else recipe)
    options = data_options or {}
    rows = _load(source, how.split_seed, options)
    if isinstance(rows.targets, SparseTargets):
        raise InputError(
            f"{source} has {len(rows.labels):,} labels as sparse targets; `compare` measures sets "
            "and queries, which need a column per label. Train each loss by `credibly train --loss "
            "…`, then `credibly evaluate --intervals` their predictions side by side."
        )
    if isinstance(how, Auto) and rows.kind == "features":
        shared = {field.name: getattr(how, field.name) for field in dataclasses.fields(Recipe)}
        how = Network(**{**shared, "model": "mlp"})
    how = _with_budget(how, rows)
    _check_names(names, rows, how)
    _claim(out, rows)
    if threads is None:
        threads = max(1, (os.cpu_count() or 1) // jobs)
    at_least("threads", threads, 1)
    work = [
        RunSpec(
            source,
            options,
            str(out / "runs" / f"{folder_name(name)}-seed{seed}"),
            dataclasses.replace(how, loss=name),
            seed,
            threads,
            conditions,
        )
        for seed in range(seeds)
        for name in names
    ]
    figures = _work(work, jobs, done)
    results = _results(names, seeds, figures, rows, how, out / "runs")
    write_json(out / "results.json", results.to_dict())
    return results


def folder_name(loss: str) -> str:
    """Return the name of a loss as part of a path.

    Example:
        >>> folder_name("asl(gamma_neg=4)+lpr")
        'asl_gamma_neg_4_+lpr'
    """
    return re.sub(r"[^\w.+-]", "_", loss)


_CACHE: dict[tuple[str, int, str], Data] = {}


def _load(source: str, seed: int, options: JsonObject) -> Data:
    """Return the data, read once per process."""
    from credibly import data

    key = (source, seed, repr(sorted(options.items())))  # options may contain lists
    if key not in _CACHE:
        _CACHE.clear()
        _CACHE[key] = data.load(source, seed=seed, **options)
    return _CACHE[key]


def _with_budget(recipe: Recipe, rows: Data) -> Recipe:
    if recipe.average_size is not None:
        return recipe
    targets = rows.part("train").dense_targets
    mean = float(np.where(targets > 0, targets, 0).sum() / max(len(targets), 1))
    size = min(float(max(1, math.ceil(mean))), float(len(rows.labels)))
    return dataclasses.replace(recipe, average_size=size)


def _check_names(names: Sequence[str], rows: Data, recipe: Recipe) -> None:
    """Raise for a misspelt loss before hours are spent on the others."""
    for name in names:
        one = resolve(dataclasses.replace(recipe, loss=name), rows)
        build_loss(one, rows, len(rows.part("train")))
    if len({folder_name(name) for name in names}) < len(names):
        raise InputError(f"two of the losses {', '.join(names)} would share one folder.")


def _claim(out: Path, rows: Data) -> None:
    """Record the data in a folder; raise if it contains a comparison on other data."""
    path = out / "comparison.json"
    about = {"data": rows.source, "fingerprint": rows.fingerprint()}
    sweep(out)
    if path.exists():
        before = read_json_object(path, _ADVICE)
        if before != about:
            raise InputError(
                f"{out} holds a comparison on other data ({before.get('data')}); choose another "
                "`out`."
            )
        return
    write_json(path, about)


def _work(work: Sequence[RunSpec], jobs: int, done: Callable[[str], None]) -> JsonObject:
    figures: JsonObject = {}
    in_turn = ((number, perform(job)) for number, job in enumerate(work))
    with closing(in_turn if jobs == 1 else in_processes(perform, work, jobs)) as finished:
        for number, result in finished:
            name = Path(work[number].folder).name
            figures[name] = result
            done(name)
    return figures


def perform(job: RunSpec) -> JsonObject:
    """Train one run, or load it if it is finished; return its metrics."""
    import torch

    rows = _load(job.source, job.recipe.split_seed, job.options)
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        run = fit(rows, job.recipe, folder=job.folder, seed=job.seed, resume=True)
        return _figures_of(run, job.conditions)
    finally:  # with one job, this is the caller's process
        torch.set_num_threads(before)


def _figures_of(run: Run, conditions: int) -> JsonObject:
    """Return the metrics of a finished run, from its folder if they were computed before."""
    assert run.folder is not None
    kept = run.folder / "compared.json"
    if kept.exists():
        figures = read_json_object(kept, _ADVICE)
        if figures.get("conditions") == conditions:
            return figures
    figures = {**run.metrics, **_further(run, conditions), "conditions": conditions}
    write_json(kept, figures)
    return figures


def _further(run: Run, conditions: int) -> JsonObject:
    """Return calibration before the calibrator, and retrieval by number of conditions."""
    assert run.folder is not None
    predictions = Predictions.read(run.folder / "predictions.parquet")
    scores, targets = predictions.scores, predictions.targets
    assert scores is not None
    assert targets is not None
    further: JsonObject = {}
    sigmoid = Pipeline().probabilities(scores)
    truth, options = Targets(targets), {"kind": "ace", "min_count": MIN_COUNT}
    further["ACE, sigmoid"] = float(metrics.calibration_error(sigmoid, truth, **options))
    if run.criterion.has_link and run.criterion.num_outputs(len(run.labels)) == len(run.labels):
        linked = Pipeline(run.criterion).probabilities(scores)
        further["ACE, link"] = float(metrics.calibration_error(linked, truth, **options))
    if targets.dtype == np.int8:
        most = min(conditions, len(predictions.labels))
        found = metrics.retrieval_map(
            predictions.probabilities, truth, max_conditions=most, budget_seconds=5.0
        )
        for count in range(1, most + 1):
            value = float(found.by_conditions[count])
            further[f"retrieval@{count}"] = None if math.isnan(value) else value
    return further


# The table -----------------------------------------------------------------------------------


def _results(
    names: Sequence[str],
    seeds: int,
    figures: JsonObject,
    rows: Data,
    recipe: Recipe,
    folder: Path,
) -> Comparison:
    by_loss: dict[str, dict[str, Figure]] = {}
    for name in names:
        ends = [f"{folder_name(name)}-seed{seed}" for seed in range(seeds)]
        runs = [figures[end] for end in ends]
        by_loss[name] = _over_seeds(runs) if seeds > 1 else _over_rows(runs[0], folder / ends[0])
    assert recipe.average_size is not None
    return Comparison(
        data=rows.source,
        fingerprint=rows.fingerprint(),
        test_rows=len(rows.part("test")),
        average_size=recipe.average_size,
        seeds=seeds,
        interval=f"{LEVEL:.0%} interval over {'seeds' if seeds > 1 else 'test rows'}",
        losses=by_loss,
        runs=dict(sorted(figures.items())),
    )


def _over_seeds(runs: Sequence[JsonObject]) -> JsonObject:
    """Return mean and Student's t interval of every metric that all runs have."""
    from scipy.stats import t

    table: JsonObject = {}
    for name in runs[0]:
        values = [float(run[name]) for run in runs if run.get(name) is not None]
        if name == "conditions" or len(values) < len(runs):
            continue
        mean = float(np.mean(values))
        spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
        half = float(t.ppf((1 + LEVEL) / 2, len(values) - 1)) * spread
        table[name] = {"mean": mean, "low": mean - half, "high": mean + half}
    return table


def _over_rows(figures: JsonObject, folder: Path) -> JsonObject:
    """Return each metric of the only run, with a bootstrap interval if there is one."""
    predictions = Predictions.read(folder / "predictions.parquet")
    assert predictions.targets is not None
    state = predictions.metadata.get("decision")
    sets = None if state is None else decide.from_state(state).predict(predictions.probabilities)
    intervals = metrics.summary_intervals(
        predictions.probabilities,
        Targets(predictions.targets),
        scores=predictions.scores,
        sets=sets,
    )
    table: JsonObject = {}
    for name, value in figures.items():
        if name == "conditions" or value is None:
            continue
        table[name] = {"mean": value}
        if name in intervals:
            interval = intervals[name]
            table[name] |= {"low": float(interval.low), "high": float(interval.high)}
    return table
