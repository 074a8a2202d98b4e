"""Linear probe first, then fine-tuning: the last layer solved for pretrained features."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from train_instances import awkward, pictures, pretrained_weights, sha, train_by_two

import credibly as cr
from credibly import InputError
from credibly.models import build
from credibly.train import Callback, fit, recipe, resolve

NETWORK = {"model": "resnet20-32", "epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> str:
    """Weights of a network that has seen something else."""
    return pretrained_weights(tmp_path_factory.mktemp("weights"))


def features_of(network, part):
    rows = part.torch_dataset(train=False)
    with torch.no_grad():
        return network.features(rows.batch(range(len(part)))[0]).double()


def started(data, loss, weights, **options):
    """A run whose training moves nothing, and the metrics of each penalty for its last layer."""
    heard = []

    class Ear(Callback):
        def on_linear_probe(self, figures) -> None:
            heard.append(figures)

    still = {"learning_rate": 1e-30, "weight_decay": 0.0, "select": "last", "epochs": 1}
    settings = recipe(**{**NETWORK, **still, "weights": weights, "loss": loss}, **options)
    return fit(data, settings, callback=Ear()), heard


def test_the_solution_is_that_of_scikit_learn(pretrained):
    data = pictures(200)
    run, heard = started(data, "bce", pretrained)
    network, train = run.model, data.part("train")
    inputs = features_of(network, train)
    scale = float(inputs.square().mean().sqrt())
    l2 = min(heard, key=lambda figures: figures["nll"])["l2"]
    scores = run.scores(train).numpy()
    for label in range(4):
        model = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=5000)
        model.fit((inputs / scale).numpy(), train.targets[:, label])
        expected = model.decision_function((inputs / scale).numpy())
        np.testing.assert_allclose(scores[:, label], expected, atol=2e-2 * np.abs(expected).max())


@pytest.mark.parametrize("loss", ["bce", "spa", "softmax", "twl", "asl"])
def test_the_last_layer_beats_constant_scores_on_held_out_rows(loss, pretrained):
    data = pictures(200)
    _, heard = started(data, loss, pretrained)
    rates = data.part("train").targets.mean(axis=0)
    constant = cr.metrics.log_loss(
        np.tile(rates, (len(data.part("calibration")), 1)), data.part("calibration").targets
    )
    assert min(row["nll"] for row in heard) < constant


def test_features_of_any_scale_have_the_same_solution(pretrained, tmp_path):
    """The last norm of this network scales its features."""
    data, state = pictures(200), load_file(pretrained)
    larger = {name: 1000 * state[name] for name in ("norm.weight", "norm.bias")}
    save_file({**state, **larger}, tmp_path / "larger.safetensors")
    one, first = started(data, "bce", pretrained)
    two, second = started(data, "bce", str(tmp_path / "larger.safetensors"))
    assert [row["l2"] for row in first] == [row["l2"] for row in second]
    test = data.part("test")
    assert features_of(two.model, test).mean() > 900 * features_of(one.model, test).mean() > 0
    torch.testing.assert_close(two.scores(test), one.scores(test), atol=1e-2, rtol=1e-2)


def test_weights_without_finite_features_are_refused(tmp_path):
    state = build("resnet20-32", (1, 16, 16), 4).backbone.state_dict()
    path = tmp_path / "backbone.safetensors"
    save_file({name: (tensor * 1e30).contiguous() for name, tensor in state.items()}, path)
    with pytest.raises(InputError, match=r"must be finite; .* turn `probe_first` off"):
        fit(pictures(), recipe(**NETWORK, weights=str(path)), folder=tmp_path / "run")


SOLVED = {
    "images with weights": ({}, True),
    "zero biases": ({"prior_bias": False}, True),
    "frozen": ({"frozen": True}, False),
    "not wanted": ({"probe_first": False}, False),
    "a loss with a memory": ({"loss": "quasibinary"}, False),
    "another gradient": ({"loss": "focal(detach_weight=true)"}, False),
    "two scores per label": ({"loss": "avgk", "average_size": 2.0}, False),
    "weights of a preset taken back": ({"weights": "none"}, False),
}


@pytest.mark.parametrize(("given", "solved"), SOLVED.values(), ids=SOLVED)
def test_pretrained_networks_for_images_start_with_a_solved_last_layer(given, solved, pretrained):
    settings = recipe(**{**NETWORK, "weights": pretrained, **given})
    resolved = resolve(settings, pictures())
    assert resolved.probe_first is solved
    assert resolve(resolved, pictures()) == resolved


REFUSED = {
    "no weights": ({"weights": None}, "no `weights`"),
    "frozen": ({"frozen": True}, "got `frozen`"),
    "memory": (
        {"loss": "quasibinary"},
        "without parameters or state of its own.*got 'quasibinary'",
    ),
    "detached": ({"loss": "asl(detach_weight=true)"}, "whose gradient belongs to its value"),
    "two scores": ({"loss": "avgk", "average_size": 2.0}, "one score per label"),
}


@pytest.mark.parametrize(("given", "match"), REFUSED.values(), ids=REFUSED)
def test_a_probe_that_cannot_be_had_is_refused(given, match, pretrained, tmp_path):
    settings = {**NETWORK, "weights": pretrained, "probe_first": True, **given}
    with pytest.raises(InputError, match=match):
        fit(pictures(), recipe(**settings), folder=tmp_path / "run")


def test_without_held_out_rows_nothing_is_solved(pretrained):
    data = pictures()
    alone = dataclasses.replace(data, split=np.where(data.split == 2, 0, data.split))
    settings = recipe(**NETWORK, weights=pretrained, calibrate="none", select="last")
    assert resolve(settings, alone).probe_first is False
    with pytest.raises(InputError, match="held-out rows"):
        resolve(dataclasses.replace(settings, probe_first=True), alone)


@pytest.mark.parametrize("loss", ["bce", "quasibinary", "avgk", "role", "softmax", "joint"])
def test_only_losses_that_depend_on_one_score_per_label_alone_can_probe(loss, pretrained):
    settings = recipe(**NETWORK, weights=pretrained, loss=loss, average_size=2.0)
    assert resolve(settings, pictures()).probe_first == (loss in ("bce", "softmax"))


def test_an_interrupted_run_ends_bit_identical_and_solves_once(pretrained, tmp_path):
    class Ear(Callback):
        def on_linear_probe(self, figures) -> None:
            raise AssertionError("solved again")

    class Stop(Callback):
        def on_update(self, done: int, total: int) -> None:
            if done == 4:
                raise KeyboardInterrupt

    settings = recipe(**NETWORK, weights=pretrained, checkpoint_seconds=0.0)
    fit(pictures(), settings, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(pictures(), settings, folder=tmp_path / "broken", callback=Stop())
    fit(pictures(), settings, folder=tmp_path / "broken", resume=True, callback=Ear())
    for name in ("model.safetensors", "calibration.json", "predictions.parquet", "log.jsonl"):
        assert sha(tmp_path / "broken" / name) == sha(tmp_path / "whole" / name), name


def test_a_callback_hears_of_every_penalty_before_the_first_update(pretrained, tmp_path):
    heard = []

    class Ear(Callback):
        def on_linear_probe(self, figures) -> None:
            heard.append(figures)

        def on_update(self, done: int, total: int) -> None:
            heard.append(done)

    run = fit(pictures(), recipe(**NETWORK, weights=pretrained), folder=tmp_path, callback=Ear())
    count = heard.index(1)
    assert len({each["l2"] for each in heard[:count]}) == count >= 3
    assert all(set(each) == {"l2", "nll", "map", "ace"} for each in heard[:count])
    assert heard[count:] == list(range(1, len(heard) - count + 1))
    assert run.recipe.probe_first


def test_two_processes_start_from_the_same_last_layer(pretrained, tmp_path):
    settings = {**NETWORK, "weights": pretrained, "fixed_norms": True, "augment": "none"}
    train_by_two(tmp_path, [("two", "pictures", settings)])
    fit(pictures(), recipe(**settings), folder=tmp_path / "one")
    one, two = (
        cr.Predictions.read(tmp_path / name / "predictions.parquet") for name in ("one", "two")
    )
    np.testing.assert_allclose(two.probabilities, one.probabilities, atol=2e-3)


def test_features_are_never_solved_first(tmp_path):
    assert resolve(recipe(model="mlp"), awkward()).probe_first is False
    assert resolve(recipe("auto"), awkward()).network().probe_first is None
