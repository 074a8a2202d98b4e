"""What five users must have after they did what one page of the documentation says.

``tests/documentation/test_blocks.py`` runs the blocks of a page in a folder of their own, then its
tasks here. The sixth user, of Hugging Face and Lightning: ``test_frameworks_user.py``.
"""

from __future__ import annotations

import configparser
import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

import credibly as cr

ROOT = Path(__file__).parents[2]


def _map(predictions: cr.Predictions) -> float:
    return float(
        np.mean(cr.metrics.average_precision(predictions.probabilities, predictions.targets))
    )


def own_training_loop(_: dict[str, Any]) -> None:
    """Losses of ours in a loop of one's own: four labels by name, well ranked."""
    predictions = cr.Predictions.read("predictions.parquet")
    assert predictions.labels == ["fork", "knife", "apple", "table"]
    assert list(predictions.ids) == [str(row) for row in range(400)]
    assert _map(predictions) > 0.9


def scikit_learn(names: dict[str, Any]) -> None:
    """Classifiers of scikit-learn: one calibrated column per label, better than the base rates."""
    classifier, calibrated = names["classifier"], names["calibrated"]
    assert len(classifier.classes_) == len(calibrated.classes_) == 5
    assert abs(names["sets"].sum(axis=1).mean() - 2) < 0.2  # fitted on held-out rows
    Y = np.asarray(names["Y"])
    rates = np.broadcast_to(Y.mean(axis=0), Y.shape)
    assert cr.metrics.log_loss(names["probabilities"], Y) < cr.metrics.log_loss(rates, Y)
    assert -1 < names["score"] < 0


def images_in_a_table(_: dict[str, Any]) -> None:
    """Images listed in a CSV file: ten labels and not their combinations; paths as ids."""
    predictions = cr.Predictions.read("runs/first/predictions.parquet")
    assert sorted(predictions.labels) == [str(digit) for digit in range(10)]
    assert len(predictions.ids) == 120
    assert {re.fullmatch(r"images/\d+\.png", each) is not None for each in predictions.ids} == {
        True
    }
    assert _map(predictions) > 0.2  # three epochs; the labels' combinations gave 0.07
    assert len(cr.Predictions.read("again.parquet").ids) == 600


def mixed_table(_: dict[str, Any]) -> None:
    """A table of numbers, categories, dates and gaps: two labels, own ids, columns by name."""
    run = cr.load("runs/patients")
    assert run.labels == ["diabetes", "hypertension"]
    predictions = cr.Predictions.read("runs/patients/predictions.parquet")
    assert all(each.startswith("p") for each in predictions.ids)
    assert _map(predictions) > 0.75
    with open("probabilities.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ids, first = [next(iter(row.values())) for row in rows], rows[0]
    assert ids == ["p0", "p1", "p2"]
    expected = run.predict("patients.csv")
    again = expected.probabilities[list(expected.ids).index("p0")]
    shown = [float(first[name]) for name in ("diabetes", "hypertension")]
    np.testing.assert_allclose(shown, again, atol=1e-5)


def deployment(names: dict[str, Any]) -> None:
    """Export, serve, predict: ONNX and server agree with the run; the recipes are right."""
    run = cr.load("run")
    assert run.labels == ["diabetes", "hypertension", "asthma"]
    assert _map(cr.Predictions.read("run/predictions.parquet")) > 0.5
    rows = names["rows"]
    expected = run.predict(rows).probabilities
    _, probabilities, _ = names["session"].run(None, {"inputs": rows})
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(names["answer"]["probabilities"], expected, atol=1e-6)
    page = (ROOT / "docs/tutorials/deploy.md").read_text(encoding="utf-8")
    _check_unit(re.findall(r"```ini\n(.*?)```", page, re.DOTALL)[0])
    _check_image(re.findall(r"```dockerfile\n(.*?)```", page, re.DOTALL)[0])


def _check_unit(text: str) -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(text)
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.startswith(service["WorkingDirectory"])
    _check_command([Path(program).name, *words])


def _check_image(text: str) -> None:
    """Every instruction is known, what it copies exists, its extra exists, its command starts."""
    lines = [line.split(" ", 1) for line in text.replace("\\\n", " ").splitlines()]
    known = ["FROM", "COPY", "RUN", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "CMD"]
    assert [word for word, _ in lines if word not in known] == []
    copied = [rest.split()[-2] for word, rest in lines if word == "COPY"]
    assert copied == [".", "run/"]
    assert Path("run/predictions.parquet").exists()
    extras = re.findall(r"/src\[(\w+)\]", text)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert extras
    assert all(f"\n{extra} = [" in project for extra in extras)
    assert (ROOT / "constraints.txt").read_text().splitlines()[-1] in text  # the same torch
    compile(re.findall(r'HEALTHCHECK CMD python -c "(.*)"', text)[0], "healthcheck", "exec")
    _check_command(json.loads(dict(lines)["CMD"]))


def _check_command(words: list[str]) -> None:
    """A server that is started by these words answers, in a folder that holds the run."""
    import blocks

    assert words[:2] == ["credibly", "serve"]
    given = [
        word for place, word in enumerate(words) if "--host" not in words[place - 1 : place + 1]
    ]
    code, printed = blocks.serve(given[2:])
    blocks.stop()
    assert code == 0, printed


TASKS = {
    "docs/guide/integrations.md": (own_training_loop, scikit_learn),
    "docs/tutorials/train.md": (images_in_a_table, mixed_table),
    "docs/tutorials/deploy.md": (deployment,),
}
