"""Everything that decides how a run comes out: one frozen record, from flags or a TOML file.

The command line reads this module for its flags, so it imports nothing that takes time.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from credibly.names import METHODS

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("cosine", "linear", "constant", "step", "onecycle")
PRECISIONS = ("float32", "bf16", "fp16")
SELECTIONS = ("nll", "map", "accuracy", "average-k", "last")
SOLVERS = ("auto", "steps", "lbfgs")
STYLES = ("none", "shift", "shift+flip", "crop+flip", "imagenet")
VIEWS = ("one", "flip", "crops")

HEADS = ("forest", "boosting")
"""Models that are not trained by steps."""


RATE, FINE_TUNING_RATE = 1e-3, 3e-4

MOST_MEMBERS = 10_000
"""Of the model of a run."""

# These change how long a run takes or what it prints, never what it computes.
INCIDENTAL = ("workers", "checkpoint_seconds", "tensorboard")


# ``model`` auto compares models unless one of the other settings, all of networks, is given.
DECIDES_FREELY = (
    *("loss", "model", "average_size", "calibrate", "budget", "folds", "ensemble", "seed"),
    *("snapshots", "split_seed", "head_start", "fixed_norms"),
    *INCIDENTAL,
)

# Larger values are typing errors; they would end in a failure to allocate memory.
_LARGEST = {"epochs": 10**6, "accumulate": 10**6, "workers": 256, "seed": 2**63 - 1}
_LARGEST |= {"weight_decay": 1e30, "clip": 1e30, "mixup": 1e30, "checkpoint_seconds": 1e30}
_LARGEST_SIZES = {
    **{"hidden": 2**20, "image_size": 2**13, "batch_size": 2**24},
    **{"terms": 2**24, "max_length": 2**20},
}


def setting(default: object, help: str, choices: Sequence[object] | None = None) -> Any:
    """Return a field with its help text; the command line makes a flag of it."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. The defaults are the same for every data set.

    Example:
        >>> Settings(loss="spa+lpr", epochs=5).epochs
        5
        >>> Settings(epochs=0)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `epochs` must be a finite number of at least 1; got 0.
    """

    loss: str = setting("auto", "bce, asl, spa+lpr …; auto: softmax where rows have one label")
    model: str = setting(
        "auto",
        "mlp, forest, boosting, tfidf, cnn, timm:NAME … (docs/guide/training.md); auto: "
        "for features the best of several on rows not trained on",
    )
    weights: str | None = setting(None, "local weights file of the backbone (safetensors)")
    frozen: bool = setting(False, "train the last layer only")
    frozen_epochs: int = setting(0, "epochs that train the last layer only, before the backbone")
    head_start: bool | None = setting(
        None,
        "before training, solve the last layer for the features that the weights file gives "
        "(default: for images with weights)",
    )
    fixed_norms: bool | None = setting(
        None,
        "batch norms keep the statistics of the weights file (default: with head-start)",
    )
    features: bool = setting(False, "compute a frozen backbone's features once and keep them")
    dropout: float | None = setting(None, "dropout before the last layer (default: the model's)")
    terms: int | None = setting(None, "most terms of tfidf per column (default: 65536)")
    max_length: int | None = setting(None, "most tokens per text (default: the encoder's)")
    hidden: int | None = setting(None, "hidden width of mlp (default: the model's)")
    image_size: int | None = setting(None, "side images are brought to")
    augment: str | None = setting(None, "how training moves images (default: the data's)", STYLES)
    rand_augment: float = setting(0.0, "strength of two random operations per image, 0 to 1")
    cutout: float = setting(0.0, "side of a gray square, as a share of the image's, up to 0.5")
    color_jitter: float = setting(0.0, "brightness, contrast and saturation times 1 ± this")
    lighting: float = setting(0.0, "deviation of noise along the main colours of ImageNet")
    eval_crop: int | None = setting(
        None, "bring the shorter side of test images to this, and cut out the middle"
    )
    mixup: float = setting(0.0, "alpha of mixing each row with another; targets become soft")
    views: str = setting("one", "average scores over views of an image when predicting", VIEWS)
    average_size: float | None = setting(None, "labels per row to return on average (K)")
    epochs: int = setting(30, "passes over the training rows")
    batch_size: int | None = setting(None, "rows per step (default: 32 to 128, by number of rows)")
    accumulate: int = setting(1, "steps whose gradients are added up before an update")
    optimizer: str = setting("adamw", "optimizer", OPTIMIZERS)
    learning_rate: float | None = setting(
        None,
        f"highest learning rate (default: {RATE:g}; with head-start {FINE_TUNING_RATE:g})",
    )
    backbone_rate: float = setting(1.0, "learning rate of the backbone over that of the last layer")
    layer_decay: float = setting(1.0, "factor on the rate from each layer to the one before it")
    momentum: float = setting(0.9, "momentum of sgd")
    nesterov: bool = setting(False, "Nesterov's form of momentum")
    weight_decay: float = setting(1e-4, "weight decay (biases and norms excluded)")
    schedule: str = setting("cosine", "course of the learning rate", SCHEDULES)
    warmup: float = setting(0.05, "share of steps over which the learning rate rises")
    milestones: tuple[float, ...] = setting((), "step: shares of training after which it drops")
    clip: float = setting(0.0, "largest gradient norm; 0 does not clip")
    ema: float = setting(0.0, "decay of the moving average of weights; 0 keeps none")
    precision: str = setting("float32", "arithmetic of the model", PRECISIONS)
    prior_bias: bool = setting(True, "start the last biases at the labels' rates")
    select: str = setting("nll", "epoch to keep, judged on held-out rows", SELECTIONS)
    patience: int = setting(0, "epochs without a better one before stopping; 0 never stops")
    calibrate: str = setting(
        "auto",
        "calibrator fitted on held-out rows; auto compares link and raw scores, each with several "
        "maps, on rows left out",
        METHODS,
    )
    solver: str = setting(
        "auto",
        "lbfgs: linear, tfidf or the last layer on cached features, to the optimum; steps: by the "
        "optimizer; auto: lbfgs for tfidf, and for linear unless an option of networks is given",
        SOLVERS,
    )
    l2: float | None = setting(
        None,
        "solver lbfgs: penalty on the weights, scikit-learn's 1/C (default: rows not trained on "
        "choose)",
    )
    sweep: str | None = setting(None, "l2: choose among 45 penalties from 1e-6 to 1e5", ("l2",))
    folds: int | None = setting(
        None,
        "solver lbfgs: choose and calibrate on scores of models that did not train on the row, one "
        "model per fold, then train on all rows; 0 holds rows out (default where the data name no "
        "held-out rows: 5 for linear, 3 for tfidf)",
    )
    budget: str = setting(
        "60s", "model auto: time for the models tried, as estimated from the size of the data"
    )
    ensemble: int = setting(
        0, "on features: networks trained on different held-out rows, averaged in log-odds"
    )
    snapshots: int = setting(
        1, "with ensemble: weights kept of each network, one at the end of each cycle of its rate"
    )
    seed: int = setting(0, "seed of order, dropout, augmentation and initial weights")
    split_seed: int = setting(0, "seed of the split into training, held-out and test rows")
    workers: int = setting(0, "processes that decode images")
    checkpoint_seconds: float = setting(30.0, "seconds of work that a crash may cost")
    tensorboard: bool = setting(False, "also write TensorBoard events (needs tensorboard)")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str) -> Settings:
        """Return the settings of plain values, as a file or the command line gives them.

        Args:
            values: settings by name.
            where: what errors call the source of the values.

        Example:
            >>> Settings.from_mapping({"epoch": 3}, "run.toml")
            Traceback (most recent call last):
            ...
            credibly.checks.InputError: run.toml: unknown setting 'epoch'. Did you mean 'epochs'?
        """
        from credibly.checks import InputError, nearest

        known = [field.name for field in dataclasses.fields(Settings)]
        for name in values:
            if name not in known:
                raise InputError(f"{where}: unknown setting {name!r}. {nearest(name, known)}")
        hints = typing.get_type_hints(Settings)
        for name, value in values.items():
            if not _fits(hints[name], value):
                kind = str(getattr(hints[name], "__name__", hints[name]))
                raise InputError(f"{where}: {name!r} must be {kind}; got {value!r:.80}.")
        many = {name for name in values if typing.get_origin(hints[name]) is tuple}
        plain: dict[str, Any] = {k: tuple(v) if k in many else v for k, v in values.items()}
        return cls(**plain)

    def __post_init__(self) -> None:
        from credibly import checks

        for name in ("loss", "model"):
            if not isinstance(getattr(self, name), str):
                raise checks.InputError(
                    f"`{name}` must be a name in settings, which are stored as text; got "
                    f"{type(getattr(self, name)).__name__}. Pass the object to "
                    f"`cr.train.fit(data, out, settings, {name}=…)`."
                )
        for name in ("epochs", "accumulate"):
            checks.at_least(name, getattr(self, name), 1)
        if self.batch_size is not None:
            checks.at_least("batch_size", self.batch_size, 1)
        if self.learning_rate is not None:
            checks.positive("learning_rate", self.learning_rate)
            checks.between("learning_rate", self.learning_rate, 0, 1e30)
        for name in ("weight_decay", "clip", "patience", "workers", "checkpoint_seconds"):
            checks.at_least(name, getattr(self, name), 0)
        for name in ("frozen_epochs", "mixup"):
            checks.at_least(name, getattr(self, name), 0)
        for name in ("backbone_rate", "layer_decay"):
            checks.fraction(name, getattr(self, name), low_open=True)
        checks.fraction("rand_augment", self.rand_augment)
        checks.fraction("color_jitter", self.color_jitter)
        checks.at_least("lighting", self.lighting, 0)
        if not 0 <= self.cutout <= 0.5:
            raise checks.InputError(f"`cutout` must lie in [0, 0.5]; got {self.cutout:g}.")
        checks.between("ensemble", self.ensemble, 0, 1000)
        checks.between("snapshots", self.snapshots, 1, 100)
        for name in ("seed", "split_seed"):
            checks.at_least(name, getattr(self, name), 0)
        for name in ("momentum", "ema"):
            checks.fraction(name, getattr(self, name), high_open=True)
        checks.fraction("warmup", self.warmup, high_open=True)
        for share in self.milestones:
            checks.fraction("milestones", share, low_open=True, high_open=True)
        for name, most in _LARGEST.items():
            checks.between(name, getattr(self, name), 0, most)
        for name, most in _LARGEST_SIZES.items():
            if getattr(self, name) is not None:
                checks.between(name, getattr(self, name), 1, most)
        if self.average_size is not None:
            checks.average_size(self.average_size)
        for field in dataclasses.fields(self):
            choices, value = field.metadata.get("choices"), getattr(self, field.name)
            if choices and value is not None:
                checks.choice(field.name, value, choices)
        seconds(self.budget)
        self._check_combinations()

    def _check_combinations(self) -> None:
        from credibly import checks
        from credibly.checks import InputError

        if self.schedule == "step" and not self.milestones:
            raise InputError("`schedule` step needs `milestones`, e.g. 0.5,0.75; got none.")
        if self.select == "average-k" and self.average_size is None:
            raise InputError("`select` average-k needs `average_size` (K); got none.")
        if self.solver == "lbfgs":
            if self.model not in ("linear", "tfidf", "auto") and not self.features:
                raise InputError(
                    "`solver` lbfgs trains `model` linear or tfidf, or the last layer of another "
                    f"network on its cached features; got {self.model!r} alone. Add --frozen "
                    "--features."
                )
            if self.dropout:
                raise InputError(
                    "`solver` lbfgs needs the same loss at every call; got dropout "
                    f"{self.dropout:g}. Leave `dropout` out."
                )
        if self.features and not self.frozen:
            raise InputError("`features` keeps a frozen backbone's output; give `frozen` too.")
        if self.frozen_epochs >= self.epochs:
            raise InputError(
                f"`frozen_epochs` must be fewer than `epochs`, {self.epochs}; got "
                f"{self.frozen_epochs}. Give `frozen` to train the last layer only."
            )
        if self.frozen and (self.frozen_epochs or self.backbone_rate != 1 or self.layer_decay != 1):
            raise InputError(
                "`frozen` trains the last layer only; got `frozen_epochs`, `backbone_rate` or "
                "`layer_decay` too, which train the backbone. Give one or the other."
            )
        if self.head_start and (self.frozen or self.weights in (None, "none")):
            raise InputError(
                "`head_start` solves the last layer for a pretrained backbone that is then "
                "trained; got " + ("`frozen`." if self.frozen else "no `weights`.")
            )
        if self.features and self.views != "one":
            raise InputError(
                f"`features` keeps one view of each image; got `views` {self.views}. Leave one out."
            )
        if self.sweep is not None and self.solver != "lbfgs":
            raise InputError("`sweep` l2 belongs to `solver` lbfgs; got solver steps.")
        if self.l2 is not None:
            checks.at_least("l2", self.l2, 0)
            if self.sweep is not None or self.solver == "steps":
                raise InputError(
                    "`l2` is the penalty of `solver` lbfgs; got "
                    + ("`sweep` l2, which tries many." if self.sweep else "solver steps.")
                )
            if self.model not in ("linear", "tfidf", "auto") and not self.features:
                raise InputError(f"`l2` belongs to `model` linear or tfidf; got {self.model}.")
        if self.ensemble == 1:
            raise InputError("`ensemble` must be 0 or at least 2; got 1.")
        if self.ensemble and (self.folds or 0) > self.ensemble:
            raise InputError(
                f"`ensemble` must be at least `folds`, {self.folds}, so that every row is left out "
                f"by some member; got {self.ensemble}."
            )
        if self.snapshots > 1 and not self.ensemble:
            raise InputError(
                f"`snapshots` belongs to `ensemble`, the number of networks; got {self.snapshots} "
                "without it."
            )
        if self.snapshots > 1 and self.model not in ("auto", "mlp"):
            raise InputError(
                f"`snapshots` are of networks: `model` auto or mlp; got {self.model}. Leave it out."
            )
        if self.ensemble * self.snapshots > MOST_MEMBERS:
            raise InputError(
                f"`ensemble` times `snapshots` must be at most {MOST_MEMBERS:,} members; got "
                f"{self.ensemble} × {self.snapshots}."
            )
        if self.snapshots > self.epochs:
            raise InputError(
                f"`snapshots` must be at most `epochs`, {self.epochs}; got {self.snapshots}."
            )
        if self.folds is not None and (self.folds < 0 or self.folds == 1):
            raise InputError(f"`folds` must be 0 or at least 2; got {self.folds}.")
        if self.folds and self.solver == "steps" and not is_compared(self):
            raise InputError("`folds` belongs to `solver` lbfgs; got solver steps.")


def highest_rate(settings: Settings) -> float:
    """Return the highest learning rate: the one given, or what the way to train asks for.

    Example:
        >>> highest_rate(Settings()), highest_rate(Settings(learning_rate=0.1))
        (0.001, 0.1)
    """
    if settings.learning_rate is not None:
        return settings.learning_rate
    return FINE_TUNING_RATE if settings.head_start and settings.optimizer == "adamw" else RATE


def of_networks(name: str) -> bool:
    """Return whether a setting belongs to networks that are trained by steps.

    Example:
        >>> of_networks("epochs"), of_networks("loss")
        (True, False)
    """
    return name not in (*DECIDES_FREELY, "solver", "l2", "sweep", "terms", "select", "prior_bias")


def trained_by_steps(settings: Settings) -> bool:
    """Return whether a setting of networks differs from its default.

    Example:
        >>> trained_by_steps(Settings(model="linear")), trained_by_steps(Settings(epochs=5))
        (False, True)
    """
    own, usual = (
        dataclasses.replace(each, learning_rate=highest_rate(each))
        for each in (settings, Settings())
    )
    names = [field.name for field in dataclasses.fields(Settings) if of_networks(field.name)]
    return any(getattr(own, name) != getattr(usual, name) for name in names)


OPTIMIZER_NAMES = {"sgd": "SGD", "adamw": "AdamW"}


def how_trained(settings: Settings) -> str:
    """Return the model in words, and of a linear one how it was trained.

    Example:
        >>> how_trained(Settings(model="linear", solver="steps", optimizer="sgd", epochs=5))
        'linear layer, trained by SGD for 5 epochs'
    """
    if settings.model != "linear" or settings.ensemble:
        return settings.model
    if settings.solver == "lbfgs":
        return "linear, solved to the optimum"
    plural = "" if settings.epochs == 1 else "s"
    optimizer = OPTIMIZER_NAMES[settings.optimizer]
    return f"linear layer, trained by {optimizer} for {settings.epochs} epoch{plural}"


def is_compared(settings: Settings) -> bool:
    """Return whether a run's model was made by comparing candidates, or of several members."""
    return settings.model in ("auto", *HEADS) or settings.ensemble > 0


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(budget: str) -> float:
    """Return the seconds of a time such as ``60s``, ``5m`` or ``1h``.

    Example:
        >>> seconds("60s"), seconds("1.5m")
        (60.0, 90.0)
        >>> seconds("soon")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `budget` must be a time such as 60s, 5m or 1h; got 'soon'.
    """
    from credibly.checks import InputError

    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)\s*", str(budget))
    if found is None or found[2] not in _UNITS:
        raise InputError(f"`budget` must be a time such as 60s, 5m or 1h; got {budget!r:.80}.")
    return float(found[1]) * _UNITS[found[2]]


def _fits(hint: Any, value: Any) -> bool:
    """Return whether a plain value fits a field's annotation."""
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, (list, tuple)) and all(_fits(inner, part) for part in value)
    if typing.get_args(hint):  # a union: one of its members
        return any(_fits(part, value) for part in typing.get_args(hint))
    from credibly.checks import fits

    return value is None if hint is type(None) else fits(hint, value)


def write_toml(path: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Write ``tables`` of plain values as TOML, atomically; ``None`` is left out."""
    from credibly.files import atomic_path

    lines: list[str] = []
    for title, table in tables.items():
        lines.append(f"[{title}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
        lines.append("")
    with atomic_path(path) as beside:
        beside.write_text("\n".join(lines), encoding="utf-8")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a run's ``config.toml``."""
    from credibly.checks import InputError
    from credibly.files import read_text

    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} must be a run folder; it has no {path.name}. "
            "Make one with `credibly train DATA --out RUN`."
        ) from None
    except (ValueError, RecursionError) as error:  # not TOML, not text, absurd numbers or depth
        raise InputError(f"{path} must be a TOML file; {error}.") from error


def _toml(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
