"""Recipes: how a model is trained. Each type has only its own options and checks them.

    Auto        compare models for features; else the usual model for the data
    Linear      a linear model of features, solved to its optimum
    TextLinear  the same on weights of terms (tf-idf)
    Probe       the same on the features of a frozen network
    Trees       a forest or gradient boosting
    Network     any network, trained by steps
    Ensemble    networks for features, trained on different rows and averaged

The command line reads this module for its flags, so it imports nothing that takes time.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from credibly.names import METHODS, check_model
from credibly.types import JsonObject

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
SCHEDULES = ("cosine", "linear", "constant", "step", "onecycle")
JUDGES = ("nll", "map", "accuracy", "average-k")
PRECISIONS = ("float32", "bf16", "fp16")
SELECTIONS = ("nll", "map", "accuracy", "average-k", "last")
STYLES = ("none", "shift", "shift+flip", "crop+flip", "imagenet")
VIEWS = ("one", "flip", "crops")
TREES = ("forest", "boosting")

MAX_MEMBERS = 10_000
"""Of the model of a run."""

SWEEP = tuple(10 ** (5 - step / 4) for step in range(45))
"""Penalties that ``sweep`` of version 0.2 tried: 1e-6 to 1e5, evenly spaced on a log scale."""

INCIDENTAL = ("workers", "checkpoint_seconds", "tensorboard")
"""Options that change how long a run takes or what it writes, never what it computes."""


def option(
    default: object,
    help: str,
    *,
    choices: Sequence[object] | None = None,
    within: tuple[float, float] | None = None,
    open: str = "",
) -> Any:
    """Return a field with its help text; the command line makes a flag of it.

    Args:
        default: value if it is not given.
        help: one line of the help text.
        choices: the values allowed.
        within: smallest and largest number allowed.
        open: ends of ``within`` that are not allowed themselves: ``low``, ``high`` or both.
    """
    metadata = {"help": help, "choices": choices, "within": within, "open": open}
    return dataclasses.field(default=default, metadata=metadata)


def _folds(usual: str) -> Any:
    return option(
        None,
        "choose and calibrate on scores of models that did not train on the row, one model per "
        f"fold, then train on all rows; 0 holds rows out ({usual})",
        within=(0, 10**6),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What every recipe has.

    Args:
        loss: a name, or a loss of ``cr.losses``.
        average_size, calibrate, split_seed, workers, checkpoint_seconds, tensorboard: see
            ``credibly train --help``.
    """

    name: ClassVar[str] = ""
    model = "auto"
    folds = 0
    select = "nll"
    image_size = eval_crop = None

    loss: str | Any = option(  # noqa: RUF009 - a field
        "auto", "bce, asl, spa+lpr …; auto: softmax where rows have one label"
    )
    average_size: float | None = option(None, "labels per row to return on average (K)")
    calibrate: str = option(
        "auto",
        "calibrator fitted on held-out rows; auto compares link and raw scores, each with several "
        "maps, on rows left out",
        choices=METHODS,
    )
    split_seed: int = option(
        0, "seed of the split into training, held-out and test rows", within=(0, 2**63 - 1)
    )
    workers: int = option(0, "processes that decode images", within=(0, 256))
    checkpoint_seconds: float = option(
        30.0, "seconds between checkpoints, which a crash may cost", within=(0, 1e30)
    )
    tensorboard: bool = option(False, "also write TensorBoard events (needs tensorboard)")

    def __post_init__(self) -> None:
        from credibly import checks

        hints = type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not _fits(hints[field.name], value):
                words = _type_in_words(hints[field.name])
                raise _error(f"`{field.name}` must be {words}; got {value!r:.80}.")
            if value is None:
                continue
            if field.metadata.get("choices"):
                checks.choice(field.name, value, tuple(field.metadata["choices"]))
            for number in value if isinstance(value, tuple) else (value,):
                _check_range(field, number)
        if self.average_size is not None:
            checks.average_size(self.average_size)
        if self.select == "average-k" and self.average_size is None:
            raise _error("`select` average-k needs `average_size` (K); got none.")
        if self.folds == 1:
            raise _error("`folds` must be 0 or at least 2; got 1.")

    def in_words(self) -> str:
        """Return the model in words, and of a linear one how it is trained.

        Example:
            >>> Linear().in_words()
            'linear, solved to the optimum'
            >>> Network(model="linear", optimizer="sgd", epochs=5).in_words()
            'linear layer, trained by SGD for 5 epochs'
        """
        return str(self.model)

    def network(self, **changes: Any) -> Network:
        """Return the network of this recipe; of models that are compared, the one among them.

        Example:
            >>> Probe(model="cnn", l2=1.0).network().frozen, Auto().network().model
            (True, 'mlp')
        """
        own = option_names(type(self))
        values = {name: getattr(self, name) for name in option_names(Network) if name in own}
        values["model"] = "mlp" if is_compared(self) else self.model
        return Network(**{**values, **changes})


def _error(text: str) -> Exception:
    from credibly.checks import InputError

    return InputError(text)


def _check_range(field: dataclasses.Field[Any], value: Any) -> None:
    limits, ends = field.metadata.get("within"), field.metadata.get("open", "")
    if limits is None:
        return
    low, high = limits
    above = low < value if "low" in ends else low <= value
    below = value < high if "high" in ends else value <= high
    if not (above and below):
        interval = (
            f"{'(' if 'low' in ends else '['}{low:g}, {high:g}{')' if 'high' in ends else ']'}"
        )
        raise _error(f"`{field.name}` must lie in {interval}; got {value!r:.80}.")


@cache
def type_hints(recipe: type[Recipe]) -> JsonObject:
    """Return the types of the options of a recipe."""
    return typing.get_type_hints(recipe)


def _fits(hint: Any, value: Any) -> bool:
    """Return whether a value fits a field's annotation."""
    from credibly.checks import fits

    if hint is Any:
        return True
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, tuple) and all(_fits(inner, part) for part in value)
    if typing.get_args(hint):  # a union: one of its members
        return any(_fits(part, value) for part in typing.get_args(hint))
    return value is None if hint is type(None) else fits(hint, value)


def _type_in_words(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if hint in words:
        return words[hint]
    if typing.get_origin(hint) is tuple:
        return "a list of numbers"
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return " or ".join(_type_in_words(part) for part in parts)


# Solved to the optimum ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solved(Recipe):
    """A last layer at the optimum of loss and L2 penalty; rows not trained on choose the penalty.

    Args:
        l2: strength of the penalty ½‖weights‖² against the sum of the losses of all known entries,
            scikit-learn's 1/C. Of several, rows not trained on choose; None: a search.
        folds: see ``credibly train --help``.
    """

    l2: tuple[float, ...] | float | None = option(
        None,
        "penalty on the weights, scikit-learn's 1/C; of several, rows not trained on choose "
        "(default: a search)",
        within=(0, 1e30),
    )
    folds: int | None = _folds("default where the data name no held-out rows: 5; of texts 3")
    select: str = option("nll", "penalty to keep, judged on rows not trained on", choices=JUDGES)

    @property
    def penalties(self) -> list[float] | None:
        """Return the penalties to try; None for a search."""
        if self.l2 is None:
            return None
        return list(self.l2) if isinstance(self.l2, tuple) else [self.l2]

    def in_words(self) -> str:
        return f"{self.model}, solved to the optimum"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Solved):
    """A linear model of features."""

    name = model = "linear"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextLinear(Solved):
    """A linear model of the terms of texts, weighted by tf-idf."""

    name = "text-linear"
    model = "tfidf"
    terms: int | None = option(
        None, "most terms of tfidf per column (default: 65536)", within=(1, 2**24)
    )


_WEIGHTS = option(
    None,
    "local weights file of the backbone (safetensors); auto: those of efficientnet-lite0 that "
    "credibly[images] installs",
)
_IMAGE_SIZE = option(
    None,
    "side images are brought to (default: 224; without --probe their own where they are smaller)",
    within=(1, 2**13),
)
_EVAL_CROP = option(
    None,
    "bring the shorter side of test images to this, and cut out the middle",
    within=(1, 2**13),
)
_MAX_LENGTH = option(None, "most tokens per text (default: the encoder's)", within=(1, 2**20))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Solved):
    """A linear model of the features of a frozen network, which are computed once."""

    name = "probe"
    model: str = option("auto", "the network whose features are taken")
    weights: str | None = _WEIGHTS
    hidden: int | None = option(
        None, "hidden width of mlp (default: the model's)", within=(1, 2**20)
    )
    image_size: int | None = _IMAGE_SIZE
    eval_crop: int | None = _EVAL_CROP
    max_length: int | None = _MAX_LENGTH

    def network(self, **changes: Any) -> Network:
        return super().network(frozen=True, features=True, **changes)


# Trees, and the comparison of models ----------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trees(Recipe):
    """A random forest or gradient boosting; rows not trained on choose its size."""

    name = "trees"
    model: str = option("forest", "forest or boosting", choices=TREES)
    folds: int | None = _folds("default where the data name no held-out rows: 5")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auto(Recipe):
    """Compare models for features on rows they did not see; keep the best or a weighted sum.

    On images and texts: their default model.
    """

    name = "auto"
    budget: str = option("60s", "time for the models tried, as estimated from the size of the data")
    folds: int | None = _folds("default where the data name no held-out rows: 5")

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds(self.budget)


# By steps -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(Recipe):
    """How a network is trained by steps."""

    hidden: int | None = option(
        None, "hidden width of mlp (default: the model's)", within=(1, 2**20)
    )
    dropout: float | None = option(
        None,
        "dropout before the last layer (default: the model's)",
        within=(0, 1),
        open="high",
    )
    epochs: int | None = option(
        None, "passes over the training rows (default: 30; with probe-first 5)", within=(1, 10**6)
    )
    batch_size: int | None = option(
        None, "rows per step (default: 32 to 128, by number of rows)", within=(1, 2**24)
    )
    accumulate: int = option(
        1, "steps whose gradients are added up before an update", within=(1, 10**6)
    )
    optimizer: str = option("adamw", "optimizer", choices=tuple(OPTIMIZERS))
    learning_rate: float | None = option(
        None,
        "highest learning rate (default: 0.001; with probe-first 0.0003)",
        within=(0, 1e30),
        open="low",
    )
    momentum: float = option(0.9, "momentum of sgd", within=(0, 1), open="high")
    nesterov: bool = option(False, "Nesterov's form of momentum")
    weight_decay: float = option(1e-4, "weight decay (biases and norms excluded)", within=(0, 1e30))
    schedule: str = option("cosine", "course of the learning rate", choices=SCHEDULES)
    schedule_epochs: int | None = option(
        None, "epochs after which the schedule would end (default: epochs)", within=(1, 10**6)
    )
    warmup: float = option(
        0.05, "share of steps over which the learning rate rises", within=(0, 1), open="high"
    )
    milestones: tuple[float, ...] = option(
        (), "step: shares of training after which it drops", within=(0, 1), open="low high"
    )
    clip: float = option(0.0, "largest gradient norm; 0 does not clip", within=(0, 1e30))
    ema: float = option(
        0.0, "decay of the moving average of weights; 0 keeps none", within=(0, 1), open="high"
    )
    prior_bias: bool = option(True, "start the last biases at the labels' rates")
    select: str = option("nll", "epoch to keep, judged on held-out rows", choices=SELECTIONS)
    patience: int | None = option(
        None,
        "epochs without a better one before stopping; 0 never stops (default: 0; with "
        "probe-first 2)",
        within=(0, 10**6),
    )
    probe_first = None

    @property
    def num_epochs(self) -> int:
        """Return the number of epochs: the one given, or what the way to train asks for."""
        return self.epochs or (5 if self.probe_first else 30)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "step" and not self.milestones:
            raise _error("`schedule` step needs `milestones`, e.g. 0.5,0.75; got none.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network(Steps):
    """A network, trained by steps.

    Args:
        model: a name, or your own ``torch.nn.Module``: inputs (rows, …) to scores (rows, labels),
            or twice as many columns where ``loss.scores_per_label`` is 2. It is trained in place.
            A run folder holds its weights but not its code: ``cr.load(folder, model=…)`` needs the
            same network.
        loss: a name, or your own, a subclass of ``cr.losses.Loss``; ``cr.load`` then needs it too.

    All other options: see ``credibly train --help``.

    Example:
        >>> Network(loss="spa+lpr", epochs=5).epochs
        5
        >>> Network(epochs=0)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `epochs` must lie in [1, 1e+06]; got 0.
    """

    name = "network"
    model: str | Any = option(  # noqa: RUF009 - a field
        "auto", "mlp, cnn, timm:NAME … (docs/guide/training.md)"
    )
    weights: str | None = _WEIGHTS
    frozen: bool = option(False, "train the last layer only")
    frozen_epochs: int = option(
        0, "epochs that train the last layer only, before the backbone", within=(0, 10**6)
    )
    probe_first: bool | None = option(
        None,
        "before training, solve the last layer for the features that the weights file gives "
        "(default: for images with weights)",
    )
    fixed_norms: bool | None = option(
        None, "batch norms keep the statistics of the weights file (default: with probe-first)"
    )
    features: bool = option(False, "compute a frozen backbone's features once and keep them")
    terms: int | None = option(
        None, "most terms of tfidf per column (default: 65536)", within=(1, 2**24)
    )
    max_length: int | None = _MAX_LENGTH
    image_size: int | None = _IMAGE_SIZE
    eval_crop: int | None = _EVAL_CROP
    augment: str | None = option(
        None, "how training moves images (default: the data's)", choices=STYLES
    )
    rand_augment: float = option(
        0.0, "strength of two random operations per image, 0 to 1", within=(0, 1)
    )
    cutout: float = option(
        0.0, "side of a gray square, as a share of the image's, up to 0.5", within=(0, 0.5)
    )
    color_jitter: float = option(
        0.0, "brightness, contrast and saturation times 1 ± this", within=(0, 1)
    )
    lighting: float = option(
        0.0, "deviation of noise along the main colours of ImageNet", within=(0, 1e30)
    )
    mixup: float = option(
        0.0, "alpha of mixing each row with another; targets become soft", within=(0, 1e30)
    )
    views: str = option(
        "one", "average scores over views of an image when predicting", choices=VIEWS
    )
    backbone_rate: float = option(
        1.0,
        "learning rate of the backbone over that of the last layer",
        within=(0, 1),
        open="low",
    )
    layer_decay: float = option(
        1.0, "factor on the rate from each layer to the one before it", within=(0, 1), open="low"
    )
    precision: str = option("float32", "arithmetic of the model", choices=PRECISIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features and not self.frozen:
            raise _error("`features` keeps a frozen backbone's output; give `frozen` too.")
        if self.features and self.views != "one":
            raise _error(
                f"`features` keeps one view of each image; got `views` {self.views}. Leave one out."
            )
        if self.frozen_epochs >= self.num_epochs:
            raise _error(
                f"`frozen_epochs` must be fewer than `epochs`, {self.num_epochs}; got "
                f"{self.frozen_epochs}. Give `frozen` to train the last layer only."
            )
        if self.frozen and (self.frozen_epochs or self.backbone_rate != 1 or self.layer_decay != 1):
            raise _error(
                "`frozen` trains the last layer only; got `frozen_epochs`, `backbone_rate` or "
                "`layer_decay` too, which train the backbone. Give one or the other."
            )
        if self.probe_first and (self.frozen or self.weights in (None, "none")):
            raise _error(
                "`probe_first` solves the last layer for a pretrained backbone that is then "
                "trained; got " + ("`frozen`." if self.frozen else "no `weights`.")
            )

    @property
    def highest_rate(self) -> float:
        """Return the highest learning rate: the one given, or what the way to train asks for.

        Example:
            >>> Network().highest_rate, Network(learning_rate=0.1).highest_rate
            (0.001, 0.1)
        """
        if self.learning_rate is not None:
            return self.learning_rate
        return 3e-4 if self.probe_first and self.optimizer == "adamw" else 1e-3

    def in_words(self) -> str:
        if self.model != "linear":
            return str(self.model)
        plural = "" if self.num_epochs == 1 else "s"
        optimizer = OPTIMIZERS[self.optimizer]
        return f"linear layer, trained by {optimizer} for {self.num_epochs} epoch{plural}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ensemble(Steps):
    """Networks for features, trained on different held-out rows and averaged in log-odds."""

    name = "ensemble"
    model = "mlp"
    ensemble: int = option(5, "number of networks", within=(2, 1000))
    folds: int | None = _folds("default where the data name no held-out rows: 5")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.folds or 0) > self.ensemble:
            raise _error(
                f"`ensemble` must be at least `folds`, {self.folds}, so that every row is left out "
                f"by some member; got {self.ensemble}."
            )


RECIPES: dict[str, type[Recipe]] = {
    each.name: each for each in (Auto, Linear, TextLinear, Probe, Trees, Network, Ensemble)
}
"""The recipes by name."""


def is_compared(recipe: Recipe) -> bool:
    """Return whether the model of a run is made of members that were compared or averaged."""
    return isinstance(recipe, (Auto, Trees, Ensemble))


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
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]*)\s*", str(budget))
    if found is None or found[2] not in _UNITS:
        raise _error(f"`budget` must be a time such as 60s, 5m or 1h; got {budget!r:.80}.")
    return float(found[1]) * _UNITS[found[2]]


# From names and options -----------------------------------------------------------------------


@cache
def option_names(recipe: type[Recipe]) -> tuple[str, ...]:
    """Return the options of a type of recipe."""
    return tuple(field.name for field in dataclasses.fields(recipe))


def owners(name: str) -> list[str]:
    """Return the recipes that have an option.

    Example:
        >>> owners("l2"), owners("epochs")
        (['Linear', 'TextLinear', 'Probe'], ['Network', 'Ensemble'])
    """
    return [each.__name__ for each in RECIPES.values() if name in option_names(each)]


def recipe(model: object = "auto", **options: Any) -> Recipe:
    """Return the recipe for a model and options: the first of its recipes that has them all.

    ``linear`` is solved to its optimum unless an option of ``Network`` is given; ``tfidf`` too.
    Options that are None are as if not given.

    Args:
        model: name of a model or of a recipe, a network of your own, or a recipe.
        options: of the recipe. ``probe=True`` takes the features of a frozen network.

    Example:
        >>> recipe("linear").in_words(), recipe("linear", epochs=3).in_words()
        ('linear, solved to the optimum', 'linear layer, trained by AdamW for 3 epochs')
        >>> recipe("forest", epochs=3)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `epochs` belongs to the recipe Network or Ensemble; `model` \
forest makes Trees. Leave it out, or choose another model.
    """
    from credibly.checks import nearest

    given: JsonObject = {k: value for k, value in options.items() if value is not None}
    if isinstance(model, Recipe):
        if given:
            raise _error(
                f"`{next(iter(given))}` must be given once; got it beside a recipe, which has all "
                "its options. Put it into the recipe."
            )
        return model
    known = {name for each in RECIPES.values() for name in option_names(each)}
    probe = given.pop("probe", False)
    for name in given:
        if name not in known:
            raise _error(f"unknown option {name!r}. {nearest(name, sorted(known))}")
    types = (Probe,) if probe else _types(model)
    if isinstance(model, str) and model in RECIPES and model not in ("auto", "linear"):
        model = None
    for each in types:
        if given.keys() <= set(option_names(each)):
            own: JsonObject = (
                {"model": model} if model is not None and "model" in option_names(each) else {}
            )
            return each(**given, **own)
    stray = next(name for name in given if name not in option_names(types[0]))
    raise _error(
        f"`{stray}` belongs to the recipe {_any_of(owners(stray))}; "
        f"`model` {model or types[0].name} makes {types[0].__name__}"
        + (f" with {_listed(given, types[0])}" if len(types) > 1 else "")
        + ". Leave it out, or choose another model."
    )


def _any_of(names: list[str]) -> str:
    return " or ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def _listed(given: Mapping[str, Any], kind: type[Recipe]) -> str:
    """Return the options that the first recipe has and another of the same model lacks."""
    own = [f"`{name}`" for name in given if name in option_names(kind) and name not in _shared()]
    return ", ".join(own) or "these options"


@cache
def _shared() -> tuple[str, ...]:
    return option_names(Recipe)


def _types(model: object) -> tuple[type[Recipe], ...]:
    """Return the recipes that a model's name may stand for, the usual one first."""
    if not isinstance(model, str):
        return (Network,)
    if model == "auto":
        return (Auto, Linear, Network, Ensemble)
    if model in RECIPES and model != "linear":
        return (RECIPES[model],)
    if model in TREES:
        return (Trees,)
    check_model(model)
    solved = {"linear": Linear, "tfidf": TextLinear}
    if model in solved:
        return (solved[model], Network)
    return (Network, Ensemble) if model == "mlp" else (Network, Probe)


def to_table(recipe: Recipe, seed: int) -> JsonObject:
    """Return what a run stores of a recipe: plain values by name."""
    values = {name: getattr(recipe, name) for name in option_names(type(recipe))}
    return {"recipe": recipe.name, "model": recipe.model, **values, "seed": seed}


def from_table(table: Mapping[str, Any], where: str) -> tuple[Recipe, int]:
    """Return recipe and seed of what a run stored, of version 0.2 too.

    Example:
        >>> from_table(to_table(Linear(l2=1.0), 3), "config.toml") == (Linear(l2=1.0), 3)
        True
        >>> from_table({"recipe": "network", "epoch": 3}, "run.toml")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: run.toml: unknown option 'epoch'. Did you mean 'epochs'?
    """
    from credibly.checks import choice, located, whole_number

    values: JsonObject = {
        name: tuple(each) if isinstance(each, list) else each for name, each in table.items()
    }
    with located(where):
        seed = whole_number("seed", values.pop("seed", 0), 0)
        if "recipe" not in values:
            return _from_0_2(values), seed
        kind = RECIPES[choice("recipe", values.pop("recipe"), tuple(RECIPES))]
        if "model" not in option_names(kind):
            values.pop("model", None)
        _only_known(values, option_names(kind))
        return kind(**values), seed


def _only_known(values: Mapping[str, Any], known: Sequence[str]) -> None:
    from credibly.checks import nearest

    for name in values:
        if name not in known:
            raise _error(f"unknown option {name!r}. {nearest(name, sorted(known))}")


def _from_0_2(values: JsonObject) -> Recipe:
    """Return the recipe that the flat settings of version 0.2 stand for.

    Example:
        >>> _from_0_2({"model": "tfidf", "solver": "lbfgs", "l2": 1.0, "epochs": 30})
        TextLinear(loss='auto', average_size=None, calibrate='auto', split_seed=0, workers=0, \
checkpoint_seconds=30.0, tensorboard=False, l2=1.0, folds=None, select='nll', terms=None)
    """
    known = {name for each in RECIPES.values() for name in option_names(each)}
    if "head_start" in values:
        values["probe_first"] = values.pop("head_start")
    _only_known(values, (*known, "solver", "sweep", "snapshots"))
    model = str(values.get("model", "auto"))
    solver, sweep, _ = (values.pop(name, None) for name in ("solver", "sweep", "snapshots"))
    if solver is None and sweep is None:  # some settings only, as the command line takes them
        return recipe(model, **{name: each for name, each in values.items() if name != "model"})
    kind: type[Recipe] = Network
    if values.get("ensemble"):
        kind = Ensemble
    elif solver == "lbfgs":
        solved = TextLinear if model == "tfidf" else Linear
        kind = Probe if values.get("features") else solved
    elif model in ("auto", *TREES):
        kind = Auto if model == "auto" else Trees
    if sweep and model != "tfidf":
        values["l2"] = SWEEP
    return kind(**{name: each for name, each in values.items() if name in option_names(kind)})
