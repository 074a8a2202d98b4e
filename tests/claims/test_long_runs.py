"""The queue of long runs: each unit once, records whole, interrupted units go on."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from benchmarks.long_runs import records
from benchmarks.long_runs.plan import Plan
from benchmarks.long_runs.unit import carried_out, translate

from credibly import losses

ROOT = Path(__file__).resolve().parents[2]
TINY = """
[setups.digits]
data = "digits:few"
trainings = [[1, 3]]
trial_epochs = [1]
rates = [1e-3]
seeds = [0]
trial_minutes = 1
minutes = 1
[setups.digits.settings]
model = "cnn"
batch_size = 32
checkpoint_seconds = 0.0

[methods]
"asl, detached" = { loss = "asl(gamma_pos=0,detach_weight=true)" }

[[queue]]
experiment = "E0"
setup = "digits"
methods = ["asl, detached"]
"""


def document(**changes) -> dict:
    setup = {
        "data": "digits:few",
        "settings": {},
        "trainings": [[4], [12]],
        "trial_epochs": [4, 12],
        "rates": [3e-4, 1e-3, 3e-3],
        "seeds": [0, 1],
        "trial_minutes": 1,
        "minutes": 2,
        **changes,
    }
    methods = {
        "spa": {"loss": "spa"},
        "spa+lpr": {"loss": "spa+lpr", "like": "spa", "variants": ["spa+lpr(weight=0.1)", "b"]},
    }
    block = {"experiment": "E0", "setup": "s", "methods": list(methods)}
    return {"setups": {"s": setup}, "methods": methods, "queue": [block]}


def played(plan: Plan, cost) -> list:
    """Finish every unit in turn; ``cost(training)`` is its held-out log loss."""
    known, order = {}, []
    while True:
        left = [unit for unit in plan.units(known) if unit.id not in known]
        if not left:
            return order
        unit = left[0]
        order.append(unit)
        results = [{"reads": [{"held_out": {"nll": cost(one)}}]} for one in unit.trainings]
        known[unit.id] = {"trainings": unit.trainings, "results": results}


def distance(best: dict[int, float]):
    """A log loss that is lowest at a rate for each length, and with the second variant."""

    def cost(training: dict) -> float:
        steps = abs(math.log10(training["learning_rate"] / best[training["reads"][-1]]))
        return steps + (0 if training["loss"] in ("spa", "b") else 1)

    return cost


@pytest.mark.parametrize("best", [{4: 1e-3, 12: 1e-3}, {4: 3e-2, 12: 1e-3}, {4: 1e-3, 12: 3e-5}])
def test_rates_widen_until_the_best_lies_inside_and_every_length_has_its_own(best):
    order = played(Plan(document()), distance(best))
    tried = sorted(u.trainings[0]["learning_rate"] for u in order if "trial/rate" in u.id)
    assert tried[0] < min(best.values())
    assert max(best.values()) < tried[-1]
    runs = [unit for unit in order if not unit.trial]
    assert [unit.id for unit in runs] == [
        f"s/{name}/seed={seed}" for seed in (0, 1) for name in ("spa", "spa+lpr")
    ]
    for unit in runs:
        assert {one["reads"][-1]: one["learning_rate"] for one in unit.trainings} == best
        assert {one["loss"] for one in unit.trainings} == {"b" if "lpr" in unit.id else "spa"}


def test_a_rate_at_which_training_fails_is_not_chosen():
    def cost(training):
        return None if training["learning_rate"] > 1e-3 else 1.0 / training["learning_rate"]

    order = played(Plan(document()), cost)
    assert {one["learning_rate"] for u in order if not u.trial for one in u.trainings} == {1e-3}


def test_what_is_left_counts_units_whose_choices_are_not_made():
    plan = Plan(document())
    assert len(list(plan.remaining({}))) == 3 + 2 + 2 * 2
    assert sum(unit.minutes for unit in plan.remaining({})) == 5 * 1 + 4 * 2


def test_a_killed_writer_leaves_the_records_as_they_were(tmp_path):
    records.append(tmp_path, {"id": "a", "experiment": "E0"})
    script = (
        "import os, signal; from pathlib import Path; from benchmarks.long_runs import records\n"
        "records.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"records.append(Path({str(tmp_path)!r}), {{'id': 'b', 'experiment': 'E0'}})"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == -signal.SIGKILL
    assert list(records.read(tmp_path)) == ["a"]
    records.append(tmp_path, {"id": "b", "experiment": "E0"})
    assert list(records.read(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    "name", ["asl(gamma_pos=0,detach_weight=true)", "asl(detach_weight=true)", "quasibinary"]
)
def test_a_translated_last_layer_starts_near_the_probabilities_of_bce(name):
    criterion = losses.from_name(name, num_labels=4)
    inputs = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    head = torch.nn.Linear(3, 4)
    with torch.no_grad():
        head.weight.copy_(torch.eye(4, 3) * 2.0)
        head.bias.fill_(-2.0)
        before = head(inputs)
        translate(head, criterion, before)
        found = criterion.probabilities(head(inputs))
    assert (found - torch.sigmoid(before)).abs().mean() < 0.04
    assert not torch.equal(head(inputs), before)


@pytest.mark.parametrize(
    ("loss", "start"),
    [("spa", "own linear probe"), ("asl(gamma_pos=0,detach_weight=true)", "BCE's linear probe")],
)
def test_a_unit_that_fine_tunes_starts_from_a_solved_last_layer(loss, start, tmp_path):
    unit = {
        "id": "a",
        "data": "digits:few",
        "settings": {"model": "cnn", "batch_size": 32, "head_start": True, "fixed_norms": True},
        "trainings": [{"reads": [1], "learning_rate": 1e-3, "loss": loss}],
        "seed": 0,
        "trial": False,
    }
    record = carried_out(unit, tmp_path)
    assert "failed" not in record
    (training,) = record["results"]
    assert training["start"] == start
    (read,) = training["reads"]
    assert read["maps"]["link + affine"]["NLL"] < math.log(2)


def queue(folder: Path, limit: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "plan.toml").write_text(TINY, encoding="utf-8")
    options = [f"--{name}={folder / name}" for name in ("results", "work")]
    options += [f"--plan={folder / 'plan.toml'}", f"--limit={limit}", "--nice=0"]
    return [sys.executable, "-m", "benchmarks.long_runs", *options]


def lines(folder: Path) -> list[dict]:
    text = (folder / "results" / "E0.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_killed_queue_goes_on_to_the_same_records(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL}
    subprocess.run(queue(whole, limit=1), check=True, **quiet)
    process = subprocess.Popen(queue(killed, limit=2), **quiet)
    unit = killed / "work" / "units" / "checkout" / "digits" / "asl, detached" / "seed=0"
    while not list(unit.glob("training-0/state/*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not list((killed / "results").glob("*"))
    subprocess.run(queue(killed, limit=9), check=True, **quiet)
    expected, found = lines(whole), lines(killed)
    assert [record["id"] for record in found] == ["digits/asl, detached/seed=0"]
    for record in (*expected, *found):
        assert record.pop("cpu_seconds") > 0
        del record["date"]
    assert found == expected
    assert {"raw", "link", "link + affine"} <= set(found[0]["results"][0]["reads"][1]["maps"])
