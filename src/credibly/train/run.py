"""A trained run: loading, saving and prediction."""

from __future__ import annotations

import dataclasses
import os
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from credibly.arrays import column_names, is_sparse_matrix, to_numpy
from credibly.checks import InputError, choice
from credibly.data.preparation import Columns, Preparation, warn_of_position
from credibly.files import write_json
from credibly.models.text import build_text
from credibly.notebook import html_table
from credibly.pipeline import LINKS, Pipeline
from credibly.predictions.validation import label_difference
from credibly.targets import SparseTargets, Targets
from credibly.train.auto import empty_members, members_of
from credibly.train.distributed import SingleProcess, score, to_score
from credibly.train.extreme_classification import top_of_rows, top_predictions
from credibly.train.recipes import Network, Recipe, from_table, is_compared
from credibly.train.run_folder import (
    CALIBRATION,
    CANDIDATES,
    CONFIG,
    ENCODER,
    MANIFEST,
    METRICS,
    MODEL,
    manifest_problems,
    prefixed,
    read_config,
    read_tensors,
    save_tensors,
)
from credibly.types import Array, ArrayLike, ArrowTable, JsonObject
from credibly.untrusted.documents import read_json_object

if TYPE_CHECKING:
    from credibly.calibrate import Calibrator
    from credibly.data import Data
    from credibly.data.token_rows import Encoded
    from credibly.decide.base import Decision
    from credibly.losses import Loss
    from credibly.models.network import NetworkModule
    from credibly.predictions import Predictions


OBJECT, PYTHON = "object:", "python:"


@dataclasses.dataclass(repr=False)
class Run:
    """A trained model with the pipeline from its scores to label sets.

    Attributes:
        folder: where the run is stored; None for a run in memory.
        recipe: how it was trained, with all options resolved.
        seed: of all randomness.
        data: the training data: source, fingerprint, labels, input shape, feature names.
        model: returns the scores of rows.
        pipeline: from scores to log-odds, probabilities and label sets: the link of the loss,
            the calibrator and the decision. Calibrator and decision are fitted on held-out
            rows.
        metrics: of the test rows; empty if there are none.
        candidates: the compared models with their out-of-fold metrics, and the members of the
            model. For solved models, the penalties tried. Otherwise empty.
        held_out: calibrated probabilities of the rows that the calibrator was fitted on, each
            repeated by its weight. Only in the process that fitted it.
        spent: CPU seconds per compared model. Only in the process that compared them.

    Example:
        >>> import credibly as cr
        >>> run = cr.train.fit(cr.data.load("synthetic", n=200), cr.train.Linear(l2=1.0))
        >>> run.recipe.loss, run.pipeline.decision, len(run.labels)
        ('bce', Threshold(threshold=0.5), 20)
    """

    folder: Path | None
    recipe: Recipe
    seed: int
    data: JsonObject
    model: nn.Module
    pipeline: Pipeline
    metrics: JsonObject = dataclasses.field(default_factory=dict)
    candidates: JsonObject = dataclasses.field(default_factory=dict)
    held_out: Array | None = None
    spent: dict[str, float] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        about = f"{self.recipe.loss}, {self.recipe.model}, {len(self.labels)} labels"
        return f"Run({about})" if self.folder is None else f"Run({str(self.folder)!r}: {about})"

    @property
    def title(self) -> str:
        """Return the name of the run for messages."""
        return "the run" if self.folder is None else str(self.folder)

    def _repr_html_(self) -> str:
        """Return the metrics of the test rows as a table, for notebooks."""
        numbers = [
            [name, value] for name, value in self.metrics.items() if isinstance(value, (int, float))
        ]
        return html_table(repr(self), ["test rows", ""], numbers)

    @property
    def labels(self) -> list[str]:
        """Return the names of the labels, in the order of the columns."""
        return list(self.data["labels"])

    @property
    def feature_names(self) -> list[str] | None:
        """Return the names of the columns that rows must have, or None if unknown."""
        return None if self.preparation is None else self.preparation.names

    @property
    def preparation(self) -> Preparation | None:
        """Return the preparation of columns into features, or None if names are unknown."""
        return Preparation.of_run(self.data, str(self.folder))

    @property
    def criterion(self) -> Loss:
        """Return the loss."""
        assert self.pipeline.loss is not None
        return self.pipeline.loss

    @property
    def calibrator(self) -> Calibrator | None:
        """Return the fitted calibrator, or None."""
        return self.pipeline.calibrator

    @property
    def decision(self) -> Decision | None:
        """Return the fitted decision, or None."""
        return self.pipeline.decision

    def encoded(self, rows: Data) -> Data:
        """Return rows with their texts encoded by the model, and other rows unchanged."""
        if rows.texts is None or rows.encoded is not None:
            return rows
        return rows.encoded_by(text_model(self.model).encode)

    def scores(self, rows: Data) -> Tensor:
        """Return the output of the model for each row."""
        dataset = to_score(self.encoded(rows), self.recipe)
        device = next(iter(self.model.state_dict().values())).device
        return score(self.model, dataset, SingleProcess(device), self.recipe.workers)

    @property
    def keeps_top_labels(self) -> bool:
        """Return whether predictions contain only the most probable labels of each row."""
        return bool(self.data.get("sparse", False))

    def read(self, source: str | os.PathLike[str] | ArrowTable, **options: Any) -> Data:
        """Read rows to predict, as ``cr.data.load`` does, with the labels and features of the run.

        Features are matched by name, in the order of training. Labels may be missing. The default
        of each option is its value for the training data.
        """
        from credibly.data.loading import load_new

        return load_new(
            source,
            labels=self.labels,
            preparation=self.preparation,
            reader=self.data.get("reader"),  # version 0.2 did not write this field
            seed=self.recipe.split_seed,
            **options,
        )

    def predict(self, rows: Data | ArrayLike | str | os.PathLike[str] | ArrowTable) -> Predictions:
        """Return predictions for data, a file, a data frame, an array or a list of texts.

        Features of a file or a data frame are matched by name. Columns of an array must be in the
        order of training. A run on very many labels returns the most probable labels of each row.

        Raises:
            InputError: if rows do not fit the run.
        """
        rows = self.check(self._as_data(rows))
        return self.predicted(rows, truth=rows.has_truth)

    def predicted(self, rows: Data, truth: bool) -> Predictions:
        """Return predictions of checked rows, with the truth if requested."""
        if not self.keeps_top_labels:
            return self.predictions(rows, self.scores(rows), truth)
        rows = self.encoded(rows)
        dataset, device = to_score(rows, self.recipe), next(self.model.parameters()).device
        kept = top_of_rows(self.model, dataset, self.criterion, device, self.recipe.workers)
        return top_predictions(rows, kept, self.calibrator, self.metadata())

    def probabilities(self, rows: Data | ArrayLike | str | os.PathLike[str] | ArrowTable) -> Array:
        """Return the calibrated probability of each label, (rows, labels), float64."""
        data = self.check(self._as_data(rows))
        return self.pipeline.probabilities(self.scores(data).numpy())

    def predictions(self, rows: Data, scores: Tensor, truth: bool = True) -> Predictions:
        """Return predictions of ``rows`` with these ``scores``, with the truth if requested."""
        from credibly.predictions import Predictions

        array = scores.numpy()
        return Predictions.from_arrays(
            probabilities=self.pipeline.probabilities(array).astype(np.float32),
            labels=self.labels,
            ids=rows.ids,
            targets=Targets(rows.dense_targets) if truth else None,
            scores=self.pipeline.ranking_scores(array),
            metadata=self.metadata(),
        )

    def metadata(self) -> JsonObject:
        """Return the metadata of a predictions file: where it comes from."""
        linked = self.criterion.has_link and self.pipeline.link != "raw"
        return {
            "loss": self.recipe.loss,
            "link": self.recipe.loss if linked else None,
            **_stages(self.pipeline),
            "seed": self.seed,
            "model": self.recipe.model,
            "data": self.data["source"],
            **({"candidates": self.candidates["candidates"]} if self.candidates else {}),
        }

    def _as_data(self, given: Any) -> Data:
        from credibly.data import Data

        if isinstance(given, Data):
            return given
        if isinstance(given, (str, os.PathLike)) or column_names(given) is not None:
            return self.read(given)
        count = given.shape[0] if is_sparse_matrix(given) else len(given)
        unknown = SparseTargets.unknown(count, len(self.labels))
        unknown = unknown if self.keeps_top_labels else unknown.dense()
        if isinstance(given, Columns) and self.preparation is not None:
            names = self.preparation.feature_names
            made = self.preparation.transform(given)
            return Data(self.labels, unknown, features=made, feature_names=names)
        kind = self.data["kind"]
        if kind == "text+regions":
            raise InputError(
                f"{self.title} takes questions with regions of images; load them by "
                "`cr.data.load('vqa:…')`."
            )
        plain = kind == "text" or is_sparse_matrix(given)
        inputs: JsonObject = {kind: given if plain else to_numpy(given)}
        if kind == "text":
            inputs = {"texts": list(inputs[kind]), "source": "the texts"}
        return Data(self.labels, unknown, **inputs)

    def check_part(self, rows: Data, part: str) -> None:
        """Raise for rows that are called held out but that this run was trained on."""
        trained = part == "calibration" and self.recipe.folds
        if trained and rows.fingerprint() == self.data["fingerprint"]:
            raise InputError(
                f"{self.title} was also trained on the calibration rows of {rows.source}, because "
                f"it was calibrated with {self.recipe.folds} folds. Train with --folds 0 to hold "
                "these rows out, or predict test rows."
            )

    def check(self, rows: Data) -> Data:
        """Return rows with features in the order of training.

        Raises:
            InputError: for another type of input, other features, or other labels or label
                order.
        """
        if rows.kind != self.data["kind"]:
            raise InputError(
                f"{self.title} was trained on {self.data['kind']}; {rows.source} holds {rows.kind}."
            )
        if self.preparation is not None:
            rows = self.preparation.applied(rows)
        elif rows.feature_names is not None:
            warn_of_position(self.title, rows.source)
        shape, own = tuple(rows.input_shape or ()), tuple(self.data["shape"])
        if shape not in ((), own) and rows.texts is not None:
            raise InputError(
                f"{self.title} was trained on inputs of shape {own} (columns of text, then regions "
                f"and their width); {rows.source} has {shape}."
            )
        if shape not in ((), own) and rows.kind == "features":
            names = self.feature_names
            wanted = own[0] if names is None else len(names)
            raise InputError(
                f"{self.title} was trained on {wanted} features per row; {rows.source} has "
                f"{shape[0]}."
            )
        if list(rows.labels) != self.labels:
            raise InputError(
                f"{rows.source} must have the {len(self.labels)} labels that {self.title} was "
                f"trained with, in their order; it {label_difference(rows.labels, self.labels)}."
            )
        return rows


def load(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    allow_python: bool = False,
) -> Run:
    """Return a finished run, ready to predict. Nothing is unpickled.

    Args:
        folder: of the run.
        model: a network of the same shape, for a run that was trained with a network object.
        loss: the loss object, for a run that was trained with one.
        allow_python: allow a run that names ``python:package.module:factory`` to import that
            code. Use it only for folders that you trust.

    Example:
        >>> import credibly as cr
        >>> data = cr.data.load("synthetic", n=200)
        >>> _ = cr.train.fit(data, cr.train.Linear(l2=1.0), folder="runs/linear")
        >>> cr.load("runs/linear").predict(data).probabilities.shape
        (200, 20)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} must be a run folder; it does not exist.")
    for problem in manifest_problems(folder).values():
        if problem is not None:
            raise InputError(problem)
    config = read_config(folder)
    if not (folder / CALIBRATION).exists() or not (folder / MODEL).exists():
        raise InputError(
            f"{folder} holds a run that has not finished. "
            f"Continue with `credibly train {config['data']['source']} --out {folder} --resume`."
        )
    recipe, seed = from_table(config["settings"], str(folder / CONFIG))
    saved = read_tensors(folder / MODEL)
    if model is None and recipe.model.startswith(OBJECT):
        raise missing_object(recipe.model, "model")
    if model is None and recipe.model.startswith(PYTHON) and not allow_python:
        raise refuse_python(recipe.model)
    data = config["data"]
    context = {"num_labels": len(data["labels"]), "num_rows": data["train_rows"]}
    criterion = loss_of(recipe, loss, **context)
    # Networks of this package take no memory before the file is known to fit.
    ours = model is None and ":" not in recipe.model and data["kind"] != "text"
    if model is None:
        with torch.device("meta") if ours else nullcontext():
            model = _empty_model(recipe, data, criterion, folder)
    if data["kind"].startswith("text"):
        text_model(model).read_encoder(folder / ENCODER)
    run = Run(folder, recipe, seed, data, model, Pipeline(criterion))
    types = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    state = {
        name: tensor.to(types.get(name, tensor.dtype))
        for name, tensor in saved.group("model").items()
    }
    try:
        run.model.load_state_dict(state, assign=ours)
        run.criterion.load_state_dict(saved.group("loss"), strict=False)
    except (RuntimeError, TypeError) as error:
        reason = " ".join(str(error).replace("torch.Size", "").split())
        raise InputError(f"{folder / MODEL} does not fit {folder / CONFIG}; {reason}") from error
    run.criterion.eval()
    ready(run)
    _read_calibration(run, folder)
    if (folder / METRICS).exists():
        run.metrics = read_json_object(folder / METRICS)
    if (folder / CANDIDATES).exists():
        run.candidates = read_json_object(folder / CANDIDATES)
    return run


def _empty_model(recipe: Recipe, data: JsonObject, criterion: Loss, folder: Path) -> nn.Module:
    shape, num_labels, network = tuple(data["shape"]), len(data["labels"]), recipe.network()
    if is_compared(recipe):
        path = folder / CANDIDATES
        if not path.is_file():
            raise InputError(f"{path} is missing. It describes the model. Put it back.")
        members = members_of(read_json_object(path), path)
        return empty_members(members, int(shape[0]), num_labels, network)
    if network.model.startswith(PYTHON):
        return build_from_factory(network.model, shape, num_labels * criterion.scores_per_label)
    encoder = folder / ENCODER if data["kind"].startswith("text") else None
    return build_network(network, shape, num_labels, criterion, encoder=encoder)


def ready(run: Run) -> None:
    """Make the model of a run ready to score rows.

    Features are scored in float64, so the scores of a row do not depend on the other rows.
    """
    run.model.eval()
    foreign = run.recipe.model.startswith((OBJECT, PYTHON))
    if run.data["kind"] == "features" and not run.keeps_top_labels and not foreign:
        run.model.double()


def _read_calibration(run: Run, folder: Path) -> None:
    from credibly import calibrate, decide

    state = read_json_object(folder / CALIBRATION)
    if state.get("calibrator") is not None:
        run.pipeline.calibrator = calibrate.from_state(state["calibrator"])
    run.pipeline.link = choice("link", state.get("link", "plateau"), LINKS)
    if state.get("decision") is not None:
        run.pipeline.decision = decide.from_state(state["decision"])


def write_model(run: Run, folder: Path) -> None:
    """Write encoder, candidates and weights. Each file is written completely or not at all."""
    (folder / MANIFEST).unlink(missing_ok=True)  # from an earlier end of the same run
    if run.data["kind"].startswith("text"):
        (folder / ENCODER).mkdir(exist_ok=True)
        text_model(run.model).write_encoder(folder / ENCODER)
    if run.candidates:
        write_json(folder / CANDIDATES, run.candidates)
    kept = {
        **prefixed("model", run.model.state_dict()),
        **prefixed("loss", run.criterion.link_state()),
    }
    save_tensors(folder / MODEL, kept, {"data": run.data["fingerprint"]})


def write_calibration(run: Run, folder: Path) -> None:
    """Write the stages of the pipeline."""
    write_json(folder / CALIBRATION, {"link": run.pipeline.link, **_stages(run.pipeline)})


def _stages(pipeline: Pipeline) -> JsonObject:
    stages = {"calibrator": pipeline.calibrator, "decision": pipeline.decision}
    return {name: None if each is None else each.state() for name, each in stages.items()}


# Model and loss, by name or as objects ---------------------------------------------------------
#
# A recipe may hold your own network or loss: as an object, written to configurations as
# ``object:NAME``, or as a factory, ``python:package.module:factory``. A factory runs code. It is
# imported only if you name it: by ``--model``, by your own configuration file, or by
# ``allow_python=True`` when a run is loaded.


def loss_of(recipe: Recipe, loss: Loss | None, **context: object) -> Loss:
    """Return the loss object, or the loss that the recipe names."""
    from credibly import losses

    if loss is not None:
        return loss
    if recipe.loss.startswith(OBJECT):
        raise missing_object(recipe.loss, "loss")
    return losses.from_name(recipe.loss, average_size=recipe.average_size, **context)


def missing_object(name: str, what: str) -> InputError:
    """Return the error for a configuration that needs an object which was not passed."""
    return InputError(
        f"this run was trained with your own {what} ({name.removeprefix(OBJECT)}), which a run "
        f"folder does not store. Pass it again: `cr.load(folder, {what}=…)`. To continue "
        "training, put it into the recipe."
    )


def refuse_python(name: str) -> InputError:
    """Return the error for a run that names code without permission to import it."""
    return InputError(
        f"this run imports Python code ({name}). If you trust it, use `cr.load(folder, "
        "allow_python=True)` or --allow-python. Or pass the network: `cr.load(folder, model=…)`."
    )


def build_from_factory(name: str, shape: tuple[int, ...], num_scores: int) -> nn.Module:
    """Import ``python:package.module:factory`` and return ``factory(shape, num_scores)``."""
    _, _, rest = name.partition(":")
    module_name, _, factory_name = rest.partition(":")
    if not (module_name and factory_name.isidentifier()):
        raise InputError(
            f"`model` must read python:package.module:factory; got {name!r}, e.g. "
            "python:mypackage.networks:build."
        )
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InputError(
            f"`model` {name!r}: {module_name!r} cannot be imported ({error}). Install it, or put "
            "its folder on PYTHONPATH."
        ) from error
    if factory_name not in vars(module):
        raise InputError(f"`model` {name!r}: {module_name} has no {factory_name!r}.")
    try:
        model = vars(module)[factory_name](tuple(shape), num_scores)
    except TypeError as error:
        raise InputError(
            f"`model` {name!r}: it is called as {factory_name}(input_shape, num_scores), here "
            f"{factory_name}({tuple(shape)}, {num_scores}); {error}."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(
            f"`model` {name!r} must return a torch.nn.Module; got {type(model).__name__}."
        )
    return model


@runtime_checkable
class TextModel(Protocol):
    """The methods that a network for texts has in addition to ``forward``."""

    def encode(self, texts: Array) -> Encoded:
        """Encode texts of shape (rows, columns) as rows of tensors."""
        ...

    def write_encoder(self, folder: Path) -> None:
        """Write what ``encode`` needs, except the weights, into ``folder``."""
        ...

    def read_encoder(self, folder: Path) -> None:
        """Read the files of ``write_encoder`` when a run is loaded."""
        ...


def text_model(model: nn.Module) -> TextModel:
    """Return ``model`` as a network for texts.

    Raises:
        InputError: if it lacks a method that such a network has.
    """
    if not isinstance(model, TextModel):
        raise InputError(
            "a network for texts must have the methods `encode(texts)`, `write_encoder(folder)` "
            f"and `read_encoder(folder)`; {type(model).__name__} lacks one. docs/guide/data.md has "
            "a small example."
        )
    return model


def build_network(
    network: Network,
    inputs: Data | tuple[int, ...],
    num_labels: int,
    criterion: Loss,
    *,
    weights: str | None = None,
    encoder: Path | None = None,
) -> NetworkModule:
    """Return the built-in network that a recipe names, with fresh or stored weights.

    Args:
        network: the recipe.
        inputs: the data, or the shape of one input.
        num_labels: number of labels.
        criterion: the loss.
        weights: of the backbone.
        encoder: folder of a run on texts, which contains the encoder.
    """
    from credibly import models

    num_outputs = criterion.num_outputs(num_labels)

    text = encoder is not None or getattr(inputs, "texts", None) is not None
    own = ("terms", "max_length") if text else ("hidden", "image_size", "fixed_norms", "views")
    given: JsonObject = {name: getattr(network, name) for name in ("dropout", "frozen", *own)}
    given["weights"] = weights
    if text:
        return build_text(network.model, inputs, num_outputs, encoder=encoder, **given)
    return models.build(network.model, inputs, num_labels, num_outputs=num_outputs, **given)
