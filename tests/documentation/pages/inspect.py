"""What annotators send back: answers to what the page asks."""

import json
from pathlib import Path

import credibly as cr

issues = cr.inspect.label_issues(predictions)[:20]  # noqa: F821
answer = {"result": [{"type": "choices", "value": {"choices": []}}]}
tasks = cr.integrations.label_studio.tasks(issues)
export = [{"data": task["data"], "annotations": [answer]} for task in tasks]
Path("export.json").write_text(json.dumps(export), encoding="utf-8")
cr.integrations.fiftyone.write_labels(issues, "reviewed.json")
