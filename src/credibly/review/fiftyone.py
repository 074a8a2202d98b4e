"""FiftyOne: write the review queue as a dataset on disk, and read the annotators' answers.

    issues = cr.review.label_issues(predictions)
    cr.review.fiftyone.write_labels(issues, "queue/labels.json")
    # fo.Dataset.from_dir(data_path="images", labels_path="queue/labels.json",
    #                     dataset_type=fo.types.FiftyOneImageClassificationDataset)
    # remove the labels that are absent, then export the dataset in the same format
    reviews = cr.review.fiftyone.read_reviews("reviewed/labels.json", issues)
    corrected = cr.review.apply_reviews(predictions, reviews)

Each row has the labels to review as classifications, with their probability as confidence. A label
that remains after the review is present; a removed label is absent. This module does not import
FiftyOne.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from credibly.checks import InputError
from credibly.files import write_json
from credibly.review.issues import LabelIssue
from credibly.review.reviews import Review
from credibly.types import FilePath
from credibly.untrusted.documents import read_json_object


def labels(issues: Iterable[LabelIssue]) -> dict[str, object]:
    """Return the document ``labels.json`` of a FiftyOneImageClassificationDataset.

    Keys are the ids of rows, which are the names of the images without their extension.
    """
    rows: dict[str, list[dict[str, object]]] = {}
    for issue in issues:
        rows.setdefault(issue.id, []).append(
            {
                "label": issue.label,
                "confidence": issue.probability,
                "attributes": {
                    "kind": issue.kind,
                    "given": issue.given,
                    "error_probability": issue.error_probability,
                },
            }
        )
    return {"labels": rows}


def write_labels(issues: Iterable[LabelIssue], path: FilePath) -> None:
    """Write ``labels`` as JSON; the file is complete or absent."""
    write_json(path, labels(issues))


def read_reviews(path: FilePath, asked: Iterable[LabelIssue | Review]) -> list[Review]:
    """Return the decisions of a reviewed dataset that was exported in the same format.

    Args:
        path: its ``labels.json``. Rows that are missing in it count as not reviewed.
        asked: the entries of the queue: issues, or ``cr.review.read_queue`` of a file.

    Raises:
        InputError: if the file is not such an export.
    """
    path = Path(path)
    document = read_json_object(path, "Export a FiftyOneImageClassificationDataset.")
    rows = document.get("labels")
    if not isinstance(rows, dict):
        raise InputError(
            f"{path} must hold the labels of a FiftyOneImageClassificationDataset under 'labels'; "
            f"it has {sorted(document)[:5]}."
        )
    classes = document.get("classes") or []
    kept = {name: _names(content, classes, path, name) for name, content in rows.items()}
    return [
        Review(entry.id, entry.label, int(entry.label in kept[entry.id]))
        for entry in asked
        if entry.id in kept
    ]


def _names(content: object, classes: list[str], path: Path, row: str) -> set[str]:
    """Return the label names of a row from no label, one or a list of names, indices or objects."""
    parts = [] if content is None else content if isinstance(content, list) else [content]
    names = set()
    for part in parts:
        value = part.get("label") if isinstance(part, dict) else part
        if isinstance(value, int) and 0 <= value < len(classes):
            value = classes[value]
        if not isinstance(value, str):
            raise InputError(f"{path}: the labels of {row!r} must be names; got {part!r:.80}.")
        names.add(value)
    return names
