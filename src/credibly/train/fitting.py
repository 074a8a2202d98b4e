"""From data to a finished run: claim the folder, train, calibrate, predict, measure."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from credibly import __version__
from credibly.checks import InputError
from credibly.files import sweep
from credibly.train import build
from credibly.train.judge import Judge, log_odds, probabilities
from credibly.train.log import Log
from credibly.train.loop import Loop, Watcher
from credibly.train.processes import score
from credibly.train.run import CONFIG, METRICS, Run, load, write_config, write_json, write_run
from credibly.train.settings import INCIDENTAL, Settings, from_mapping, read_toml
from credibly.types import Array

if TYPE_CHECKING:
    from accelerate import Accelerator

    from credibly.data import Data
    from credibly.losses import Loss
    from credibly.predictions import Predictions


def fit(
    data: Data,
    folder: str | Path,
    settings: Settings | None = None,
    *,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Run:
    """Train on the training rows of ``data``; calibrate on its held-out rows; judge on its test.

    Args:
        data: from ``cr.data.load``.
        folder: of the run: ``config.toml``, ``model.safetensors``, ``state/``, ``log.jsonl``,
            ``calibration.json``, ``predictions.parquet`` (test rows), ``metrics.json``.
        settings: how; the defaults otherwise.
        resume: go on with what ``folder`` holds. Where it holds nothing, start.
        watcher: told of progress.

    Example:
        >>> import tempfile, credibly as cr
        >>> quick = Settings(model="linear", epochs=2)
        >>> run = fit(cr.data.synthetic(300), tempfile.mkdtemp(), quick)
        >>> run.predict(cr.data.synthetic(5).features).probabilities.shape
        (5, 20)
    """
    folder = Path(folder)
    settings = build.resolved(settings or Settings(), data)
    accelerator = build.build_accelerator(settings)
    run = _assemble(data, folder, settings, accelerator.num_processes)
    if accelerator.is_main_process:
        claim(folder, settings, data, resume)
    accelerator.wait_for_everyone()
    if resume and (folder / METRICS).exists():
        return load(folder)
    rows, network = _inputs(run, data, accelerator)
    _train(run, rows, network, accelerator, watcher or Watcher())
    _finish(run, rows, network, accelerator)
    accelerator.wait_for_everyone()
    return run


# The folder ----------------------------------------------------------------------------------


def claim(folder: Path, settings: Settings, data: Data, resume: bool) -> None:
    """Make ``folder`` this run's, or check that it already is."""
    config = folder / CONFIG
    if config.exists():
        if not resume:
            raise InputError(
                f"{folder} already holds a run. Go on with it by --resume, or choose another --out."
            )
        _same_run(folder, settings, data)
        for place in (folder, folder / "state"):
            sweep(place)
            for leftover in place.glob(".tmp*"):  # what safetensors writes beside
                leftover.unlink(missing_ok=True)
        return
    if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise InputError(f"{folder} must be empty or a run folder; it holds other files.")
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, settings, description(data, settings))


def description(data: Data, settings: Settings) -> dict[str, Any]:
    """What a run remembers of its data."""
    shape = data.input_shape
    if shape is None or (len(shape) == 3 and settings.image_size is not None):
        side = settings.image_size or 224
        shape = (shape[0] if shape else 3, side, side)
    return {
        "source": data.source,
        "fingerprint": data.fingerprint(),
        "kind": data.kind,
        "shape": [int(side) for side in shape],
        "train_rows": len(data.part("train")),
        "labels": list(data.labels),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run that was begun: its tables, all there."""
    config = read_toml(folder / CONFIG)
    needed = {"credibly": ["version"], "settings": [], "data": ["source", "fingerprint", "labels"]}
    for table, keys in needed.items():
        found = config.get(table)
        lacking = [key for key in keys if key not in found] if isinstance(found, dict) else [table]
        if lacking:
            raise InputError(
                f"{folder / CONFIG} must be the whole configuration of a run; it lacks "
                f"{lacking[0]!r}. Put the file back as it was, or choose another --out."
            )
    return config


def _same_run(folder: Path, settings: Settings, data: Data) -> None:
    config = read_config(folder)
    version = str(config["credibly"]["version"])
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(
            f"{folder} was begun with credibly {version}; this is {__version__}. Install "
            f"`credibly=={version}` to go on with it, or choose another --out."
        )
    before = from_mapping(config["settings"], str(folder / CONFIG))
    for field in dataclasses.fields(Settings):
        old, new = getattr(before, field.name), getattr(settings, field.name)
        if field.name not in INCIDENTAL and old != new:
            raise InputError(
                f"{folder} was begun with {field.name} = {old!r}; got {new!r}. Resume with the "
                "same settings, or choose another --out."
            )
    if config["data"]["fingerprint"] != data.fingerprint():
        raise InputError(
            f"{folder} was begun on other data ({config['data']['source']}, "
            f"{config['data'].get('train_rows')} training rows); got {data.source} with "
            f"{len(data.part('train'))}. Resume with the same data, or choose another --out."
        )


# Training ------------------------------------------------------------------------------------


def _assemble(data: Data, folder: Path, settings: Settings, processes: int) -> Run:
    """A run with fresh weights, its loss and its rows checked against each other."""
    train, held_out = data.part("train"), data.part("calibration")
    criterion = build.build_loss(settings, data, len(train))
    _check_rows(train, held_out, settings, criterion, processes)
    model = build.build_model(settings, data, criterion, train.targets)
    return Run(folder, settings, description(data, settings), model, criterion)


def _check_rows(
    train: Data, held_out: Data, settings: Settings, criterion: Loss, processes: int
) -> None:
    if len(train) < max(processes, 2):
        raise InputError(
            f"{train.source} must have training rows, at least {max(processes, 2)}; "
            f"it has {len(train)}. Mark them 0 in `split`."
        )
    needed = settings.calibrate != "none" or settings.select != "last"
    if needed and not (held_out.targets >= 0).any():
        raise InputError(
            f"{train.source} has no held-out rows with known labels to calibrate and select on. "
            "Mark some 2 in `split`, or give --calibrate none --select last."
        )
    if criterion.single_label:
        counts = (train.targets > 0.5).sum(axis=1)
        if (counts != 1).any():
            row = int((counts != 1).argmax())
            raise InputError(
                f"loss {settings.loss!r} needs exactly one label a row; row {train.ids[row]!r} of "
                f"{train.source} has {counts[row]}. Use bce, spa or another loss for many labels."
            )


def _inputs(run: Run, data: Data, accelerator: Accelerator) -> tuple[Data, nn.Module]:
    """What is trained on what: the model on the data, or its head on features kept on disk."""
    if not run.settings.features:
        return data, run.model
    from credibly.models import cache_features

    keep = run.folder / "features"
    options = {"image_size": run.settings.image_size, "workers": run.settings.workers}
    run.model.to(accelerator.device)
    if accelerator.is_main_process:
        cache_features(run.model, data, keep, device=accelerator.device, **options)
    accelerator.wait_for_everyone()
    cached = cache_features(run.model, data, keep, device=accelerator.device, **options)
    return cached, Head(run.model)


class Head(nn.Module):
    """The last layers of ``model``, sharing its weights."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.dropout, self.head = model.dropout, model.head

    def forward(self, features: Tensor) -> Tensor:
        return self.head(self.dropout(features))


def _train(
    run: Run, rows: Data, network: nn.Module, accelerator: Accelerator, watcher: Watcher
) -> None:
    settings, state = run.settings, run.folder / "state"
    told = _Told(run, watcher) if accelerator.is_main_process else Watcher()
    held_out = rows.part("calibration")
    judge = Judge(settings, _dataset(held_out, settings, train=False), held_out.targets)
    if settings.solver == "lbfgs":
        from credibly.train.probe import solve

        solve(settings, network, run.criterion, rows.part("train"), judge, state, told)
        return
    dataset = _dataset(rows.part("train"), settings, train=True)
    loop = Loop(settings, network, run.criterion, dataset, judge, accelerator, state, told)
    loop.run()
    loop.finished()


def _dataset(rows: Data, settings: Settings, train: bool) -> Any:
    size = settings.image_size if rows.kind == "images" else None
    return rows.torch_dataset(train=train, image_size=size, seed=settings.seed)


class _Told(Watcher):
    """Keeps the log and passes everything on."""

    def __init__(self, run: Run, watcher: Watcher) -> None:
        self.log, self.watcher = Log(run.folder, run.settings.tensorboard), watcher

    def update(self, done: int, total: int) -> None:
        self.watcher.update(done, total)

    def epoch(self, figures: dict[str, Any]) -> None:
        self.log.add(figures)
        self.watcher.epoch(figures)


# After training ------------------------------------------------------------------------------


def _finish(run: Run, rows: Data, network: nn.Module, accelerator: Accelerator) -> None:
    """Calibrate and decide on held-out rows, then predict and measure on test rows."""
    held_out, test = rows.part("calibration"), rows.part("test")
    run.model.eval()
    run.criterion.eval()
    _finish_loss(run, rows.part("train"), network, accelerator)

    def scores_of(part: Data) -> Tensor:
        return score(
            network, _dataset(part, run.settings, train=False), accelerator, run.settings.workers
        )

    held_out_scores = scores_of(held_out) if len(held_out) else None
    test_scores = scores_of(test) if len(test) else None
    run.model.cpu()
    run.criterion.cpu()
    if held_out_scores is not None:
        run.calibrator = _calibrator(run, held_out_scores, held_out.targets)
        run.decision = _decision(run, probabilities(run.log_odds(held_out_scores)))
    if not accelerator.is_main_process:
        return
    write_run(run)
    if test_scores is not None:
        predictions = run.predictions(test, test_scores)
        predictions.write(run.folder / "predictions.parquet")
        run.metrics = measured(run, predictions)
    write_json(run.folder / METRICS, run.metrics)  # last: it says that the run is finished


def _finish_loss(run: Run, train: Data, network: nn.Module, accelerator: Accelerator) -> None:
    """Losses whose link holds a running estimate get an exact pass over the training rows."""
    exact = getattr(run.criterion, "fit_normalizer", None)
    if exact is not None:
        dataset = _dataset(train, run.settings, train=False)
        scores = score(network, dataset, accelerator, run.settings.workers)
        run.criterion.cpu()
        exact([(scores, torch.from_numpy(train.targets))])


def _calibrator(run: Run, scores: Tensor, targets: Array) -> Any:
    from credibly import calibrate

    name, odds = run.settings.calibrate, log_odds(run.criterion, scores)
    if name == "none":
        return None
    if name == "choose":
        return calibrate.choose(odds, targets)
    return calibrate.from_name(name).fit(odds, targets)


def _decision(run: Run, estimates: Array) -> Any:
    from credibly import decide

    if run.settings.average_size is None:
        return decide.Threshold(0.5)
    return decide.AverageSize(run.settings.average_size).fit(estimates)


def measured(run: Run, predictions: Predictions) -> dict[str, Any]:
    """Headline figures of test rows; NaN becomes None, which JSON can say."""
    from credibly import metrics

    if predictions.targets is None:
        return {}
    sets = None if run.decision is None else run.decision.predict(predictions.probabilities)
    figures = metrics.summary(
        predictions.probabilities, predictions.targets, scores=predictions.scores, sets=sets
    )
    return {name: _plain(value) for name, value in figures.items()}


def _plain(value: Any) -> float | None:
    return None if math.isnan(float(value)) else float(value)
