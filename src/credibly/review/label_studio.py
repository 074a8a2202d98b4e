"""Label Studio: write the review queue as tasks, and read the annotators' answers.

    issues = cr.review.label_issues(predictions)
    cr.review.label_studio.write_tasks(issues, "tasks.json", data="image", root="/images")
    # import tasks.json into a project whose labelling interface is label_studio.CONFIG;
    # after annotation, export the project as JSON
    reviews = cr.review.label_studio.read_reviews("export.json")
    corrected = cr.review.apply_reviews(predictions, reviews)

There is one task per row with the labels to review. Labels that the annotator ticks are present,
and the other labels of the task are absent. This module does not import Label Studio.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from credibly.checks import InputError
from credibly.files import write_json
from credibly.review.issues import LabelIssue
from credibly.review.reviews import Review
from credibly.types import FilePath, JsonObject
from credibly.untrusted.budget import read_text
from credibly.untrusted.documents import parse_json

CONFIG = """<View>
  <Image name="item" value="$image"/>
  <Choices name="labels" toName="item" choice="multiple" value="$check"/>
</View>"""
"""A labelling interface for images; for texts put ``<Text name="item" value="$text"/>`` first."""


def tasks(
    issues: Iterable[LabelIssue], *, data: str = "image", root: str = "", suffix: str = ""
) -> list[JsonObject]:
    """Return one task per row, in the order in which rows first appear in the queue.

    Args:
        issues: the entries, as ``cr.review.label_issues`` ranks them.
        data: the name of the item in the interface: ``"image"`` or ``"text"``.
        root, suffix: text before and after the id in the address of the item.
    """
    rows: dict[str, list[LabelIssue]] = {}
    for issue in issues:
        rows.setdefault(issue.id, []).append(issue)
    return [_task(name, entries, data, root, suffix) for name, entries in rows.items()]


def _task(name: str, entries: list[LabelIssue], data: str, root: str, suffix: str) -> JsonObject:
    likely = [each.label for each in entries if each.probability >= 0.5]
    address = f"{root.rstrip('/')}/{name}{suffix}" if root else f"{name}{suffix}"
    result = {
        "from_name": "labels",
        "to_name": "item",
        "type": "choices",
        "value": {"choices": likely},
    }
    return {
        "data": {
            "id": name,
            data: address,
            "check": [{"value": each.label} for each in entries],
            "probabilities": {each.label: round(each.probability, 6) for each in entries},
        },
        "predictions": [
            {
                "model_version": "credibly",
                "score": max(each.error_probability for each in entries),
                "result": [result],
            }
        ],
    }


def write_tasks(issues: Iterable[LabelIssue], path: FilePath, **options: str) -> None:
    """Write ``tasks`` as JSON; the file is complete or absent."""
    write_json(path, tasks(issues, **options))


def read_reviews(path: FilePath) -> list[Review]:
    """Return the decisions of a project exported as JSON; tasks without an answer are skipped.

    If a task has several annotations, the last one counts.

    Raises:
        InputError: if the file is not such an export.
    """
    path = Path(path)
    try:
        document = parse_json(read_text(path), f"{path} must be JSON")
        reviews = [review for task in document for review in _reviews(task)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} must be a Label Studio export in the format JSON, of tasks that credibly "
            f"wrote; {type(error).__name__}: {error}."
        ) from error
    return reviews


def _reviews(task: JsonObject) -> list[Review]:
    asked = [str(each["value"]) for each in task["data"]["check"]]
    answers = [each for each in task.get("annotations", []) if not each.get("was_cancelled")]
    if not answers:
        return []
    ticked = {
        str(choice)
        for result in answers[-1]["result"]
        if result["type"] == "choices"
        for choice in result["value"]["choices"]
    }
    name = str(task["data"]["id"])
    return [Review(name, label, int(label in ticked)) for label in asked]
