"""What annotators send back: answers to what the page asks; a folder of images and a decision."""

import json
from pathlib import Path

import credibly as cr

issues = cr.review.label_issues(predictions)[:20]  # noqa: F821
answer = {"result": [{"type": "choices", "value": {"choices": []}}]}
tasks = cr.review.label_studio.tasks(issues)
export = [{"data": task["data"], "annotations": [answer]} for task in tasks]
Path("export.json").write_text(json.dumps(export), encoding="utf-8")
cr.review.fiftyone.write_labels(issues, "reviewed.json")
Path("photos").mkdir()
row, label = str(predictions.ids[0]), predictions.labels[0]  # noqa: F821
cr.review.ReviewLog("corrections.jsonl").append([cr.review.Review(row, label, 1)], who="Ana")
