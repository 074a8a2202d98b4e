"""Printed tables: each row names a run that can be trained, and the command says what remains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import credibly as cr
from credibly.cli import main
from credibly.papers.tables import row_runs
from credibly.train import recipe

PAPERS = {
    "spa": cr.papers.spa,
    "quasibinary": cr.papers.quasibinary,
    "two-way": cr.papers.two_way,
    "average-k": cr.papers.average_k,
}
TABLES = {
    f"{paper} {number}": table
    for paper, module in PAPERS.items()
    for number, table in module.TABLES.items()
}
each_table = pytest.mark.parametrize("name", TABLES)


@each_table
def test_every_printed_row_is_a_method_and_has_a_number_for_each_column(name):
    table = TABLES[name]
    for block in table.blocks:
        numbers = block.numbers(table.columns)
        assert set(numbers) == set(table.methods), block.name
        assert all(len(row) == len(table.columns) for row in numbers.values())


@each_table
def test_every_row_makes_a_run_whose_scores_become_probabilities(name, tmp_path):
    table = TABLES[name]
    for block in table.blocks:
        source = f"{block.data}:data"
        runs = row_runs(table, block, cr.papers.preset(block.preset), source, tmp_path, seeds=2)
        assert len({run.folder for run in runs}) == 2 * len(table.methods)
        for run in runs:
            settings = recipe(**run.settings)
            loss = cr.losses.from_name(settings.loss, num_labels=4, num_rows=9, average_size=2)
            assert loss.has_link or settings.calibrate != "none"
            held_out = settings.calibrate != "none" or settings.select != "last"
            assert bool(run.data.get("calibration", 0.2)) or not held_out


@pytest.fixture
def one_label(tmp_path):
    """Write rows of three classes."""
    rng = np.random.default_rng(0)
    targets = np.arange(120) % 3
    features = rng.normal(size=(120, 4)).astype(np.float32)
    features[np.arange(120), targets] += 1
    path = tmp_path / "x.npz"
    np.savez(path, features=features, targets=targets, labels=["a", "b", "c"])
    return path


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_trains_the_rows_that_remain_and_keeps_the_others(one_label, tmp_path, capsys):
    table = ("papers", "quasibinary", "--table", "I", "--data", one_label, "--out", tmp_path / "t")
    how = ("--model", "linear", "--epochs", 2, "--seeds", 2, "--quiet")
    how += ("--batch-size", 16)
    code, shown, _ = run(capsys, *table, *how)
    assert code == 0
    assert "3 of 3 rows have no run" in shown
    assert "not the numbers" in " ".join(shown.split())
    assert not (tmp_path / "t").exists()
    assert run(capsys, *table, *how, "--run")[0] == 0
    code, shown, _ = run(capsys, *table, *how, "--json")
    rows = {row["method"]: row for row in json.loads(shown)["rows"]}
    assert rows["Softmax"]["runs"] == 2
    assert rows["Softmax"]["printed"] == {"top-1 error": 5.2}
    errors = [
        json.loads((Path(tmp_path) / "t" / "cifar10__quasibinary-cifar" / f).read_text())
        for f in ("Softmax-seed0/metrics.json", "Softmax-seed1/metrics.json")
    ]
    mean = 100 * np.mean([each["top-1 error"] for each in errors])
    assert rows["Softmax"]["ours"]["top-1 error"] == pytest.approx(mean)


def test_a_run_without_held_out_rows_says_that_it_is_not_calibrated(one_label, tmp_path, capsys):
    how = ("--preset", "quasibinary-cifar", "--model", "linear", "--epochs", 1, "--quiet")
    code, shown, _ = run(capsys, "train", one_label, *how, "--out", tmp_path / "a")
    assert code == 0
    assert "not calibrated" in shown
    code, shown, _ = run(capsys, "train", one_label, "--model", "linear", "--out", tmp_path / "b")
    assert code == 0
    assert "not calibrated" not in shown


def test_top_1_error_is_the_share_of_wrong_first_labels(one_label, tmp_path, capsys):
    out = tmp_path / "run"
    code, shown, _ = run(
        capsys, "train", one_label, "--model", "linear", "--loss", "softmax", "--out", out
    )
    assert code == 0
    assert "top-1 error" in shown
    found = cr.Predictions.read(out / "predictions.parquet")
    wrong = found.probabilities.argmax(1) != found.targets.argmax(1)
    assert cr.load(out).metrics["top-1 error"] == pytest.approx(wrong.mean())


def test_the_probe_is_chosen_and_reported_by_accuracy(one_label, tmp_path, capsys):
    out = tmp_path / "probe"
    code, shown, _ = run(capsys, "train", one_label, "--preset", "twl-probe", "--out", out)
    assert code == 0
    assert "top-1 error" in shown
    recipe = cr.load(out).recipe
    assert (recipe.loss, recipe.select, len(recipe.l2)) == ("softmax", "accuracy", 45)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    tried = [entry for entry in log if "accuracy" in entry]
    assert len(tried) == 45
    best = tried[tried[-1]["best_epoch"] - 1]
    assert best["accuracy"] == max(entry["accuracy"] for entry in tried)


def test_the_command_lists_papers_and_protocols_and_refuses_others(capsys):
    code, shown, _ = run(capsys, "papers", "--json")
    assert code == 0
    assert [row["paper"] for row in json.loads(shown)["papers"]] == list(PAPERS)
    code, shown, _ = run(capsys, "papers", "--preset", "spa-coco")
    assert "batch_size = 256" in shown
    code, _, error = run(capsys, "papers", "spa", "--table", "99")
    assert (code, error) == (2, "credibly papers: --table must be one of '3', '4'; got '99'.\n")
    code, _, error = run(capsys, "papers", "twoway")
    assert (code, "'two-way'" in error) == (2, True)


def test_losses_with_several_arguments_are_compared(one_label, tmp_path, capsys):
    names = "asl(gamma_neg=4,gamma_pos=0),bce"
    how = ("--model", "linear", "--epochs", 1, "--seeds", 1, "--conditions", 1, "--quiet")
    out = ("--out", tmp_path / "compared")
    code, shown, error = run(capsys, "compare", one_label, "--losses", names, *how, *out, "--json")
    assert (code, error) == (0, "")
    assert list(json.loads(shown)["losses"]) == ["asl(gamma_neg=4,gamma_pos=0)", "bce"]


@pytest.mark.parametrize("name", ["twl", "topk", "warp", "rml"])
@pytest.mark.parametrize("preset", ["spa-coco", "quasibinary-cifar", "twl", "avgk-cifar100"])
def test_losses_without_a_link_are_read_as_published_under_every_protocol(name, preset):
    loss = cr.losses.from_name(
        cr.papers.preset(preset).loss(name), num_labels=3, num_rows=5, average_size=2
    )
    assert loss.has_link
