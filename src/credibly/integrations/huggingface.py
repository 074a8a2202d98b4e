"""Hugging Face: the loss and the metrics for Trainer, a pipeline, and a model card.

    trainer = transformers.Trainer(
        …,
        compute_loss_func=cr.integrations.huggingface.compute_loss_func(loss),
        compute_metrics=cr.integrations.huggingface.compute_metrics(loss),
    )
    trainer.train()
    output = trainer.predict(held_out)
    result = cr.calibrate_scores(output.predictions, output.label_ids, loss="spa+lpr", labels=names)
    cr.integrations.huggingface.save("my-tagger", model, result.pipeline, tokenizer)
    card = cr.integrations.huggingface.model_card(result, "my-tagger")

    cr.integrations.huggingface.register()
    tagger = transformers.pipeline("multi-label", model="my-tagger")

Only ``register`` imports transformers. The other functions have the signatures that Trainer calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from credibly import __version__, metrics
from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.metrics.scorers import measure
from credibly.pipeline import Pipeline
from credibly.targets import Coding, Targets
from credibly.types import ArrayLike, JsonObject

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.losses import Loss
    from credibly.workflows.calibrated_scores import CalibratedScores

PIPELINE = "pipeline.json"
IGNORED = -100
"""The label that Trainer leaves out when it counts the labels of a step."""


class EvaluatedBatch(Protocol):
    """The argument of ``compute_metrics`` in Trainer: a ``transformers.EvalPrediction``."""

    predictions: ArrayLike | tuple[ArrayLike, ...]
    label_ids: ArrayLike


def compute_loss_func(loss: Loss | str) -> Callable[..., Tensor]:
    """Return a ``compute_loss_func`` for Trainer.

    Trainer adds the losses of the micro-batches of a step without dividing, so each loss is
    multiplied by its share of the labels of the step (``num_items_in_batch``). A step of 4 batches
    of 8 then equals a step of one batch of 32, for every loss that does not couple rows. Trainer
    counts all labels except −100, so code unknown labels as −100 (not −1 or NaN) if they should not
    count. Losses that couple the rows of a batch use one micro-batch at a time.

    Args:
        loss: a loss of ``cr.losses`` or its name. The model needs
            ``loss.num_outputs(num_labels)`` outputs.

    Returns:
        A function of the model's outputs, the labels and ``num_items_in_batch``.

    Example:
        >>> import torch
        >>> function = compute_loss_func("bce")
        >>> outputs, labels = {"logits": torch.zeros(2, 3)}, torch.zeros(2, 3)
        >>> function(outputs, labels), function(outputs, labels, num_items_in_batch=12)
        (tensor(0.6931), tensor(0.3466))
    """
    criterion = _loss(loss)

    def loss_of_outputs(
        outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        if labels is None:
            raise InputError(
                "every batch must hold 'labels', one value per label and row; got a batch without. "
                "Name the column 'labels' or pass `label_names=[…]` to TrainingArguments."
            )
        scores = _scores(outputs)
        criterion.to(scores.device)
        value = criterion(scores, labels)
        if num_items_in_batch is None:
            return value
        return value * ((labels != IGNORED).sum() / num_items_in_batch)

    return loss_of_outputs


def compute_metrics(
    loss: Loss | str, *, coding: Coding | None = None
) -> Callable[[EvaluatedBatch], dict[str, float]]:
    """Return a ``compute_metrics`` for Trainer: the metrics of ``cr.metrics.scorer`` by name.

    The probabilities are those of the loss's link, without a calibrator. The names are ``nll``,
    ``brier``, ``ace``, ``mce``, ``ece``, ``map`` and ``map_rows``. To select the checkpoint by log
    loss, set ``metric_for_best_model="nll"`` and ``greater_is_better=False``.

    Args:
        loss: the loss of the training, or its name. A loss without a link has only ``map`` and
            ``map_rows``.
        coding: meaning of −1 in labels of only −1 and +1; see ``credibly.targets``.

    Example:
        >>> from types import SimpleNamespace
        >>> scores, labels = np.zeros((2, 2)), np.eye(2)
        >>> evaluated = SimpleNamespace(predictions=scores, label_ids=labels)
        >>> round(compute_metrics("bce")(evaluated)["nll"], 4)
        0.6931
    """
    pipeline = Pipeline(_loss(loss))

    def metrics_of(evaluated: EvaluatedBatch) -> dict[str, float]:
        scores = evaluated.predictions
        scores = to_numpy(scores[0] if isinstance(scores, tuple) else scores)
        ranked = pipeline.ranking_scores(scores)
        targets = Targets.beside(ranked, to_numpy(evaluated.label_ids), "scores", coding=coding)
        assert pipeline.loss is not None
        values = pipeline.probabilities(scores) if pipeline.loss.has_link else None
        return measure(ranked, values, targets)

    return metrics_of


def model_card(
    result: CalibratedScores,
    name: str,
    *,
    dataset: str | None = None,
    task: str = "text-classification",
    description: str = "",
    **metadata: object,
) -> str:
    """Return the text of a README.md for the Hugging Face hub, with the calibration table.

    Args:
        result: the result of ``cr.calibrate_scores`` for held-out rows.
        name: name of the model.
        dataset, task: metadata of the hub.
        description: Markdown to insert under the title.
        metadata: more metadata of the hub, such as ``license``, ``language``, ``base_model``.

    Returns:
        YAML front matter with the metrics of the held-out rows, then Markdown: how scores
        become probabilities, the metrics of every stage, and observed rates by predicted
        probability.
    """
    front = _front_matter(result, name, metadata, dataset, task)
    parts = [
        f"# {name}",
        description or "A multi-label classifier with calibrated probabilities.",
        _probability_section(result),
        "## Calibration\n\n" + _stage_table(result) + "\n\n" + _reliability_table(result),
    ]
    return front + "\n\n".join(part.strip() for part in parts) + "\n"


def save(folder: str | Path, model: Any, pipeline: Pipeline, tokenizer: Any = None) -> None:
    """Write a model with the names of its labels, and the pipeline that maps its scores.

    Args:
        folder: as for ``model.save_pretrained``; ``pipeline.json`` is written next to the
            weights.
        model: a model of transformers.
        pipeline: ``result.pipeline`` of ``cr.calibrate_scores(…, labels=…)``.
        tokenizer: saved too, if given.
    """
    if pipeline.labels is None:
        raise InputError(
            "`pipeline` must have label names; got none. Pass `labels` to `cr.calibrate_scores`."
        )
    model.config.problem_type = "multi_label_classification"
    if model.config.num_labels == len(pipeline.labels):  # a loss may take two scores per label
        model.config.id2label = dict(enumerate(pipeline.labels))
        model.config.label2id = {label: place for place, label in enumerate(pipeline.labels)}
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    pipeline.write(Path(folder) / PIPELINE)


@cache
def register() -> type:
    """Register ``transformers.pipeline("multi-label", model=…)``, and return its class.

    It classifies texts and returns every label with its calibrated probability, the most probable
    label first; ``top_k`` limits their number. The folder of the model must contain the
    ``pipeline.json`` that ``save`` writes.
    """
    transformers: Any = import_module("transformers")
    registry = import_module("transformers.pipelines").PIPELINE_REGISTRY
    find = import_module("transformers.utils").cached_file

    class MultiLabelPipeline(transformers.TextClassificationPipeline):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.calibrated = Pipeline.read(find(self.model.name_or_path, PIPELINE))

        def __call__(self, inputs: Any, **options: Any) -> Any:
            return transformers.Pipeline.__call__(self, inputs, **options)

        def postprocess(self, model_outputs: Any, top_k: int | None = None, **_: Any) -> Any:
            scores = model_outputs["logits"].float().numpy()
            values = self.calibrated.probabilities(scores)[0].tolist()
            pairs = zip(self.calibrated.labels or (), values, strict=True)
            found = [{"label": label, "score": value} for label, value in pairs]
            return sorted(found, key=lambda each: -each["score"])[:top_k]

    registry.register_pipeline(
        "multi-label",
        pipeline_class=MultiLabelPipeline,
        pt_model=transformers.AutoModelForSequenceClassification,
        type="text",
    )
    return MultiLabelPipeline


def _loss(loss: Loss | str) -> Loss:
    built = Pipeline(loss).loss
    assert built is not None
    return built.train() if isinstance(loss, str) else built


def _scores(outputs: Any) -> Tensor:
    """Return the logits in a model's outputs, as Trainer finds them."""
    if isinstance(outputs, Mapping):  # such as ModelOutput of transformers
        if "logits" not in outputs:
            raise InputError(
                f"the outputs of the model must hold 'logits'; got {sorted(map(str, outputs))}. "
                'Return {"logits": scores} from `forward`.'
            )
        return outputs["logits"]
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


# The card ------------------------------------------------------------------------------------


def _front_matter(
    result: CalibratedScores,
    name: str,
    about: JsonObject,
    dataset: str | None,
    task: str,
) -> str:
    numbers, title = list(result.stages.values())[-1], _yaml(dataset or "held-out rows")
    about = {**about, "datasets": None if dataset is None else [dataset]}
    lines = ["---", "library_name: transformers", f"pipeline_tag: {_yaml(task)}"]
    lines += [f"{key}: {_yaml(value)}" for key, value in about.items() if value is not None]
    lines += [
        "tags: [multi-label-classification, calibrated, credibly]",
        "model-index:",
        f"- name: {_yaml(name)}",
        "  results:",
        f"  - task: {{type: {_yaml(task)}, name: Multi-label classification}}",
        f"    dataset: {{type: {title}, name: {title}}}",
        "    metrics:",
    ]
    for label in ("mAP@y", "NLL", "Brier", "ECE"):
        kind = _yaml(label.lower().replace("@", "_"))
        lines.append(f"    - {{type: {kind}, name: {_yaml(label)}, value: {numbers[label]:.4f}}}")
    return "\n".join([*lines, "---", "", ""])


def _yaml(value: object) -> str:
    """Return plain values as YAML. JSON is a subset of it."""
    return json.dumps(value, ensure_ascii=False)


def _probability_section(result: CalibratedScores) -> str:
    labels = result.predictions.labels
    listed = ", ".join(f"`{' '.join(label.split())}`" for label in labels[:30])
    more = f" and {len(labels) - 30} more" if len(labels) > 30 else ""
    return (
        "## Probabilities\n\n"
        f"{len(labels)} labels: {listed}{more}. A row may have none, one or many.\n\n"
        f"The model was trained with `{result.loss}`. Its probabilities are the link of that loss "
        "and a calibrator, both in `pipeline.json` beside the weights, not a plain sigmoid:\n\n"
        "```python\nimport credibly as cr\n\n"
        'pipeline = cr.Pipeline.read("pipeline.json")\n'
        "probabilities = pipeline.probabilities(logits)\n```\n\n"
        f"This card was written by credibly {__version__}."
    )


def _stage_table(result: CalibratedScores) -> str:
    columns = ("NLL", "Brier", "ACE", "MCE", "ECE", "mAP@y")
    shown = [name for name in columns if name in next(iter(result.stages.values()))]
    lines = [
        f"Measured on {len(result.held_out):,} rows that the calibrator was not fitted on "
        f"({len(result.fitted):,} rows). Lower is better, except for mAP.",
        "",
        "| probabilities | " + " | ".join(shown) + " |",
        "|---|" + "---:|" * len(shown),
    ]
    for stage, numbers in result.stages.items():
        cells = " | ".join(f"{numbers[name]:.4f}" for name in shown)
        lines.append(f"| {stage} | {cells} |")
    return "\n".join(lines)


def _reliability_table(result: CalibratedScores) -> str:
    held_out = result.predictions[result.held_out]
    assert held_out.targets is not None
    diagram = metrics.reliability(held_out.probabilities, Targets(held_out.targets), 10)
    lines = ["| predicted | observed | entries |", "|---:|---:|---:|"]
    for place in np.flatnonzero(diagram.counts):
        lines.append(
            f"| {diagram.confidence[place]:.3f} | {diagram.frequency[place]:.3f} | "
            f"{int(diagram.counts[place]):,} |"
        )
    return "\n".join(lines)
