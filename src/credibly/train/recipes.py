"""Recipes: how a model is trained. Each type has its own options and checks them.

- ``Auto``: for features, compare models; otherwise the default model for the data
- ``Linear``: a linear model of features, solved to its optimum
- ``TextLinear``: a linear model of tf-idf weights of texts
- ``Probe``: a linear model of the features of a frozen network
- ``Trees``: a forest or gradient boosting
- ``Network``: any network, trained by gradient steps
- ``Ensemble``: networks for features, trained on different rows; their log-odds are averaged

The command line reads its flags from this module, so the module must be fast to import.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from credibly.names import METHODS, check_model
from credibly.types import JsonObject

OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
SCHEDULES = ("cosine", "linear", "constant", "step", "onecycle")
JUDGES = ("nll", "map", "accuracy", "average-k")
PRECISIONS = ("float32", "bf16", "fp16")
SELECTIONS = (*JUDGES, "last")
STYLES = ("none", "shift", "shift+flip", "crop+flip", "imagenet")
VIEWS = ("one", "flip", "crops")
TREES = ("forest", "boosting")

MAX_MEMBERS = 10_000
"""Maximum number of members of the model of a run."""

SWEEP = tuple(10 ** (5 - step / 4) for step in range(45))
"""Penalties that the option ``sweep`` of version 0.2 tried: 1e-6 to 1e5, evenly spaced in log."""

INCIDENTAL = ("workers", "checkpoint_seconds")
"""Options that do not change the trained model."""


def option(
    default: object,
    help: str,
    *,
    choices: Sequence[object] | None = None,
    within: tuple[float, float] | None = None,
    open: str = "",
) -> Any:
    """Return a field with its help text, from which the command line makes a flag.

    Args:
        default: the default value.
        help: one line of help text.
        choices: the allowed values.
        within: the smallest and the largest allowed number.
        open: the limits of ``within`` that are excluded: ``low``, ``high`` or both.
    """
    metadata = {"help": help, "choices": choices, "within": within, "open": open}
    return dataclasses.field(default=default, metadata=metadata)


def _folds(usual: str = "default: 5; 0 if the data have held-out rows") -> Any:
    return option(
        None,
        "number of folds: choose and calibrate on out-of-fold scores, then train on all rows; 0 "
        f"holds rows out instead ({usual})",
        within=(0, 10**6),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Options of every recipe.

    Args:
        loss: a name, or a loss of ``cr.losses``.
        average_size, calibrate, split_seed, workers, checkpoint_seconds: see ``credibly train
            --help``.

    Example:
        >>> made = recipe("linear", calibrate="affine")
        >>> isinstance(made, Recipe), made.calibrate
        (True, 'affine')
    """

    name: ClassVar[str] = ""
    model = "auto"
    folds = 0
    select = "nll"
    image_size = eval_crop = None

    loss: str | Any = option(  # noqa: RUF009 - a field
        "auto", "bce, asl, spa+lpr …; auto: softmax if every row has exactly one label, else bce"
    )
    average_size: float | None = option(None, "average number of labels to return per row (K)")
    calibrate: str = option(
        "auto",
        "calibrator, fitted on held-out rows; auto compares the link and the raw scores, each "
        "with several calibrators",
        choices=METHODS,
    )
    split_seed: int = option(
        0, "seed of the split into training, held-out and test rows", within=(0, 2**63 - 1)
    )
    workers: int = option(0, "number of processes that decode images", within=(0, 256))
    checkpoint_seconds: float = option(
        30.0, "seconds between checkpoints; a crash costs at most this much work", within=(0, 1e30)
    )

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
            if field.metadata["choices"]:
                checks.choice(field.name, value, tuple(field.metadata["choices"]))
            if field.metadata["within"]:
                _check_range(field, value)
        if self.average_size is not None:
            checks.average_size(self.average_size)
        if self.select == "average-k" and self.average_size is None:
            raise _error("`select` average-k needs `average_size` (K); got none.")
        if self.folds == 1:
            raise _error("`folds` must be 0 or at least 2; got 1.")

    def in_words(self) -> str:
        """Return a description of the model and, for a linear model, of its training.

        Example:
            >>> Linear().in_words()
            'linear, solved to the optimum'
            >>> Network(model="linear", optimizer="sgd", epochs=5).in_words()
            'linear layer, trained by SGD for 5 epochs'
        """
        return str(self.model)

    def network(self, **changes: Any) -> Network:
        """Return the network of this recipe, or the network among the compared models.

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


def _check_range(field: dataclasses.Field[object], value: float | tuple[float, ...]) -> None:
    (low, high), ends = field.metadata["within"], field.metadata["open"]
    for number in value if isinstance(value, tuple) else (value,):
        above = low < number if "low" in ends else low <= number
        below = number < high if "high" in ends else number <= high
        if not (above and below):
            left, right = "(" if "low" in ends else "[", ")" if "high" in ends else "]"
            interval = f"{left}{low:g}, {high:g}{right}"
            raise _error(f"`{field.name}` must lie in {interval}; got {number!r:.80}.")


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
    if typing.get_args(hint):  # a union: the value must fit one of its types
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
    """A last layer at the optimum of loss and L2 penalty; held-out rows select the penalty.

    Args:
        l2: strength of the penalty ½‖weights‖², relative to the sum of the losses of all known
            entries; scikit-learn's 1/C. None: search; held-out rows select the value.
        folds: see ``credibly train --help``.
    """

    l2: tuple[float, ...] | float | None = option(
        None,
        "L2 penalty, scikit-learn's 1/C; of several values, held-out rows choose one (default: a "
        "search)",
        within=(0, 1e30),
    )
    folds: int | None = _folds("default: 5, for texts 3; 0 if the data have held-out rows")
    select: str = option(
        "nll", "metric of the held-out rows that chooses the penalty", choices=JUDGES
    )

    @property
    def penalties(self) -> list[float] | None:
        """Return the penalties to try, or None for a search."""
        if self.l2 is None:
            return None
        return list(self.l2) if isinstance(self.l2, tuple) else [self.l2]

    def in_words(self) -> str:
        return f"{self.model}, solved to the optimum"


_TERMS = option(
    None, "maximum number of tfidf terms per column (default: 65536)", within=(1, 2**24)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Solved):
    """A linear model of features.

    Example:
        >>> Linear(loss="spa", l2=1.0).in_words()
        'linear, solved to the optimum'
    """

    name = model = "linear"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextLinear(Solved):
    """A linear model of the terms of texts, weighted by tf-idf.

    Example:
        >>> import credibly as cr
        >>> data = cr.data.from_arrays(
        ...     texts=["a cat", "the dog", "cat and dog", "neither"] * 10,
        ...     targets=[[1, 0], [0, 1], [1, 1], [0, 0]] * 10, labels=["cat", "dog"])
        >>> run = cr.train.fit(data, cr.train.TextLinear(l2=1.0))
        >>> (run.predict(["a dog"]).probabilities > 0.5).tolist()
        [[False, True]]
    """

    name = "text-linear"
    model = "tfidf"
    terms: int | None = _TERMS


_HIDDEN = option(None, "hidden width of mlp (default: the model's)", within=(1, 2**20))
PROBED_EPOCHS = 5
"""Epochs after a linear probe."""

_WEIGHTS = option(
    None,
    "weights file of the backbone (.safetensors); auto: the weights of efficientnet-lite0 that "
    "credibly[images] installs",
)
_IMAGE_SIZE = option(
    None,
    "side length that images are scaled to (default: 224; without --probe or probe-first, "
    "smaller images keep their size)",
    within=(1, 2**13),
)
_EVAL_CROP = option(
    None,
    "scale the shorter side of test images to this length, and cut out the middle",
    within=(1, 2**13),
)
_MAX_LENGTH = option(
    None, "maximum number of tokens per text (default: the limit of the encoder)", within=(1, 2**20)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Solved):
    """A linear model of the features of a frozen network, which are computed once.

    Example:
        >>> Probe(model="cnn", l2=1.0).in_words()
        'cnn, solved to the optimum'
    """

    name = "probe"
    model: str = option("auto", "network that computes the features")
    weights: str | None = _WEIGHTS
    hidden: int | None = _HIDDEN
    image_size: int | None = _IMAGE_SIZE
    eval_crop: int | None = _EVAL_CROP
    max_length: int | None = _MAX_LENGTH

    def network(self, **changes: Any) -> Network:
        return super().network(frozen=True, features=True, **changes)


# Trees, and the comparison of models ----------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trees(Recipe):
    """A random forest or gradient boosting; held-out rows select its size.

    Example:
        >>> Trees(model="boosting").model
        'boosting'
        >>> Trees(model="shrub")
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `model` must be one of 'forest', 'boosting'; got 'shrub'.
    """

    name = "trees"
    model: str = option("forest", "forest or boosting", choices=TREES)
    folds: int | None = _folds()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Auto(Recipe):
    """Compare models for features out-of-fold; keep the best one or a weighted sum.

    Images and texts use their default model.

    Example:
        >>> seconds(Auto(budget="5m").budget)
        300.0
    """

    name = "auto"
    budget: str = option("60s", "estimated time for all models that auto compares")
    folds: int | None = _folds()

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds(self.budget)


# By steps -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps(Recipe):
    """Options of networks that are trained by gradient steps."""

    hidden: int | None = _HIDDEN
    dropout: float | None = option(
        None,
        "dropout before the last layer (default: the model's)",
        within=(0, 1),
        open="high",
    )
    epochs: int | None = option(
        None,
        "passes over the training rows (default: 30; with probe-first 5, for small images fewer)",
        within=(1, 10**6),
    )
    batch_size: int | None = option(
        None, "rows per step (default: 32 to 128, by number of rows)", within=(1, 2**24)
    )
    accumulate: int = option(
        1, "number of steps whose gradients are added before an update", within=(1, 10**6)
    )
    optimizer: str = option("adamw", "optimizer", choices=tuple(OPTIMIZERS))
    learning_rate: float | None = option(
        None,
        "highest learning rate (default: 0.001; with probe-first 0.0003)",
        within=(0, 1e30),
        open="low",
    )
    momentum: float = option(0.9, "momentum of sgd", within=(0, 1), open="high")
    nesterov: bool = option(False, "use Nesterov momentum with sgd")
    weight_decay: float = option(
        1e-4, "weight decay; not applied to biases and norms", within=(0, 1e30)
    )
    schedule: str = option("cosine", "schedule of the learning rate", choices=SCHEDULES)
    schedule_epochs: int | None = option(
        None,
        "length of the schedule in epochs, if longer than the training (default: epochs)",
        within=(1, 10**6),
    )
    warmup: float = option(
        0.05, "share of the steps in which the learning rate rises", within=(0, 1), open="high"
    )
    milestones: tuple[float, ...] = option(
        (),
        "schedule step: shares of the training after which the rate drops, e.g. 0.5,0.75",
        within=(0, 1),
        open="low high",
    )
    clip: float = option(0.0, "maximum norm of the gradient; 0: no clipping", within=(0, 1e30))
    ema: float = option(
        0.0,
        "decay of an average of the weights over steps; 0: no average",
        within=(0, 1),
        open="high",
    )
    prior_bias: bool = option(True, "start the biases of the last layer at the label rates")
    select: str = option(
        "nll",
        "metric of the held-out rows that chooses the epoch; last: the last epoch",
        choices=SELECTIONS,
    )
    patience: int | None = option(
        None,
        "stop after this many epochs without improvement; 0: never (default: 0; with probe-first "
        "2)",
        within=(0, 10**6),
    )
    probe_first = None

    @property
    def num_epochs(self) -> int:
        """Return the number of epochs: the given one, or the default."""
        return self.epochs or (PROBED_EPOCHS if self.probe_first else 30)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "step" and not self.milestones:
            raise _error("`schedule` step needs `milestones`, e.g. 0.5,0.75; got none.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network(Steps):
    """A network, trained by gradient steps.

    Args:
        model: a name, or your own ``torch.nn.Module``. It maps inputs (rows, …) to scores
            (rows, labels), or to twice as many columns if ``loss.scores_per_label`` is 2. It is
            trained in place. A run folder stores its weights but not its code, so
            ``cr.load(folder, model=…)`` needs the same network.
        loss: a name, or an instance of your own subclass of ``cr.losses.Loss``, which
            ``cr.load`` then needs too.

    All other options are described in ``credibly train --help``.

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
        0, "number of first epochs that train the last layer only", within=(0, 10**6)
    )
    probe_first: bool | None = option(
        None,
        "solve the last layer on the pretrained features before all layers are trained (default: "
        "for images with weights)",
    )
    fixed_norms: bool | None = option(
        None, "keep the batch-norm statistics of the weights file (default: with probe-first)"
    )
    features: bool = option(False, "compute the features of a frozen backbone once and keep them")
    terms: int | None = _TERMS
    max_length: int | None = _MAX_LENGTH
    image_size: int | None = _IMAGE_SIZE
    eval_crop: int | None = _EVAL_CROP
    augment: str | None = option(
        None,
        "shifts, flips and crops of training images (default: depends on the data)",
        choices=STYLES,
    )
    rand_augment: float = option(
        0.0, "strength of two random operations per image, 0 to 1", within=(0, 1)
    )
    cutout: float = option(
        0.0,
        "side of a gray square that covers a part of each image, as a share of its side, up to 0.5",
        within=(0, 0.5),
    )
    color_jitter: float = option(
        0.0, "vary brightness, contrast and saturation by a factor of 1 ± this value", within=(0, 1)
    )
    lighting: float = option(
        0.0, "standard deviation of noise along the principal colours of ImageNet", within=(0, 1e30)
    )
    mixup: float = option(
        0.0, "alpha of mixup, which mixes pairs of rows; targets become soft", within=(0, 1e30)
    )
    views: str = option(
        "one", "views of an image whose scores are averaged in prediction", choices=VIEWS
    )
    backbone_rate: float = option(
        1.0,
        "learning rate of the backbone divided by that of the last layer",
        within=(0, 1),
        open="low",
    )
    layer_decay: float = option(
        1.0,
        "factor on the learning rate from each layer to the previous one",
        within=(0, 1),
        open="low",
    )
    precision: str = option("float32", "floating-point precision of the model", choices=PRECISIONS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features and not self.frozen:
            raise _error("`features` needs a frozen backbone; give `frozen` too.")
        if self.features and self.views != "one":
            raise _error(
                f"`features` stores one view per image, but `views` is {self.views}. Leave "
                "one of them out."
            )
        if self.frozen_epochs >= self.num_epochs:
            raise _error(
                f"`frozen_epochs` must be fewer than `epochs`, {self.num_epochs}; got "
                f"{self.frozen_epochs}. Give `frozen` to train the last layer only."
            )
        if self.frozen and (self.frozen_epochs or self.backbone_rate != 1 or self.layer_decay != 1):
            raise _error(
                "`frozen` trains the last layer only, but `frozen_epochs`, `backbone_rate` and "
                "`layer_decay` are for training the backbone. Give one or the other."
            )
        if self.probe_first and (self.frozen or self.weights in (None, "none")):
            raise _error(
                "`probe_first` needs a pretrained backbone that is trained afterwards; got "
                + ("`frozen`." if self.frozen else "no `weights`.")
            )

    @property
    def highest_rate(self) -> float:
        """Return the highest learning rate: the given one, or the default.

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
    """Networks for features, trained on different rows. Their log-odds are averaged.

    Example:
        >>> Ensemble(ensemble=3, hidden=32).network().hidden
        32
    """

    name = "ensemble"
    model = "mlp"
    ensemble: int = option(5, "number of networks", within=(2, 1000))
    folds: int | None = _folds()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.folds or 0) > self.ensemble:
            raise _error(
                f"`ensemble` must be at least `folds` ({self.folds}), so that some member is not "
                f"trained on each row; got {self.ensemble}."
            )


RECIPES: dict[str, type[Recipe]] = {
    each.name: each for each in (Auto, Linear, TextLinear, Probe, Trees, Network, Ensemble)
}
"""The recipes by name."""


def is_compared(recipe: Recipe) -> bool:
    """Return whether the model consists of members that are compared or averaged."""
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
    """Return the names of the options of a recipe."""
    return tuple(field.name for field in dataclasses.fields(recipe))


def owners(name: str) -> list[str]:
    """Return the names of the recipes that have an option.

    Example:
        >>> owners("l2"), owners("epochs")
        (['Linear', 'TextLinear', 'Probe'], ['Network', 'Ensemble'])
    """
    return [each.__name__ for each in RECIPES.values() if name in option_names(each)]


def recipe(model: object = "auto", **options: Any) -> Recipe:
    """Return the first recipe for a model that has all given options.

    ``linear`` and ``tfidf`` are solved to their optimum unless an option of ``Network`` is given.
    Options that are None count as not given.

    Args:
        model: name of a model or of a recipe, your own network, or a recipe.
        options: options of the recipe. ``probe=True`` trains on the features of a frozen network.

    Example:
        >>> recipe("linear").in_words(), recipe("linear", epochs=3).in_words()
        ('linear, solved to the optimum', 'linear layer, trained by AdamW for 3 epochs')
        >>> recipe("forest", epochs=3)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `epochs` belongs to the recipe Network or Ensemble; `model` \
forest makes Trees. Leave it out, or choose another model.
    """
    given: JsonObject = {k: value for k, value in options.items() if value is not None}
    if isinstance(model, Recipe):
        if given:
            raise _error(
                f"`{next(iter(given))}` cannot be given beside a recipe. Set it in the recipe."
            )
        return model
    probe = given.pop("probe", False)
    _only_known(given, _all_options())
    types = (Probe,) if probe else _types(model)
    if isinstance(model, str) and model in RECIPES and model not in ("auto", "linear"):
        model = None
    for each in types:
        if given.keys() <= set(option_names(each)):
            if model is not None and "model" in option_names(each):
                given["model"] = model
            return each(**given)
    stray = next(name for name in given if name not in option_names(types[0]))
    # The options that the first recipe has and another recipe for the same model lacks.
    own = set(option_names(types[0])) - set(option_names(Recipe))
    beside = ", ".join(f"`{name}`" for name in given if name in own) or "these options"
    raise _error(
        f"`{stray}` belongs to the recipe {_any_of(owners(stray))}; "
        f"`model` {model or types[0].name} makes {types[0].__name__}"
        + (f" with {beside}" if len(types) > 1 else "")
        + ". Leave it out, or choose another model."
    )


def _any_of(names: list[str]) -> str:
    return " or ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


@cache
def _all_options() -> frozenset[str]:
    return frozenset(name for each in RECIPES.values() for name in option_names(each))


def _types(model: object) -> tuple[type[Recipe], ...]:
    """Return the recipes that fit a model's name, the default first."""
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
    """Return a recipe and its seed as the plain values that a run stores."""
    values = {name: getattr(recipe, name) for name in option_names(type(recipe))}
    return {"recipe": recipe.name, "model": recipe.model, **values, "seed": seed}


def from_table(table: Mapping[str, object], where: str) -> tuple[Recipe, int]:
    """Return recipe and seed from the table that a run stored. Also reads version 0.2.

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
    values.pop("tensorboard", None)  # an option of earlier versions that no model depends on
    with located(where):
        seed = whole_number("seed", values.pop("seed", 0), 0)
        if "recipe" not in values:
            return _from_0_2(values), seed
        kind = RECIPES[choice("recipe", values.pop("recipe"), tuple(RECIPES))]
        if "model" not in option_names(kind):
            values.pop("model", None)
        _only_known(values, option_names(kind))
        return kind(**values), seed


def changed(stored: Recipe, options: JsonObject) -> Recipe:
    """Return a stored recipe with other options; for another model, the recipe of that model.

    Example:
        >>> changed(Linear(l2=1.0), {"loss": "asl"}) == Linear(l2=1.0, loss="asl")
        True
    """
    same_model = options.get("model") in (None, "auto", stored.model)
    others = {name: value for name, value in options.items() if name != "model"}
    if same_model and others.keys() <= set(option_names(type(stored))):
        return dataclasses.replace(stored, **others)
    return recipe(**(others if same_model else options))


def _only_known(values: Mapping[str, object], known: Collection[str]) -> None:
    from credibly.checks import nearest

    for name in values:
        if name not in known:
            raise _error(f"unknown option {name!r}. {nearest(name, sorted(known))}")


def _from_0_2(values: JsonObject) -> Recipe:
    """Return the recipe for the flat settings of version 0.2.

    Example:
        >>> _from_0_2({"model": "tfidf", "solver": "lbfgs", "l2": 1.0, "epochs": 30})
        TextLinear(loss='auto', average_size=None, calibrate='auto', split_seed=0, workers=0, \
checkpoint_seconds=30.0, l2=1.0, folds=None, select='nll', terms=None)
    """
    if "head_start" in values:
        values["probe_first"] = values.pop("head_start")
    _only_known(values, (*_all_options(), "solver", "sweep", "snapshots"))
    model = str(values.get("model", "auto"))
    solver, sweep, _ = (values.pop(name, None) for name in ("solver", "sweep", "snapshots"))
    if solver is None and sweep is None:  # a subset of the settings, as on the command line
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
