"""Properties of the joint mixture: a distribution over label sets, its marginals and its fit."""

import json
from itertools import product

import mpmath
import numpy as np
import pytest
import torch

from credibly import InputError
from credibly.cli import main
from credibly.losses import BCE, JointMixture, LabelPairs, from_name

LABELS = 4
SETS = torch.tensor(list(product([0.0, 1.0], repeat=LABELS)), dtype=torch.float64)


def drawn(loss, rows=5, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    width = loss.num_outputs(LABELS)
    return scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)


def probabilities_of_sets(loss, scores):
    """(rows, sets), from the loss of every set."""
    each = [loss.values(scores, row.expand(len(scores), -1)) for row in SETS]
    return torch.exp(-LABELS * torch.stack(each, dim=1))


LOSSES = [
    JointMixture(LABELS, 1, spread=0.0),
    JointMixture(LABELS, 1),
    JointMixture(LABELS, 3),
    JointMixture(LABELS, 16, spread=2.0, seed=1),
]
each_loss = pytest.mark.parametrize("loss", [loss.double() for loss in LOSSES], ids=str)


@each_loss
def test_probabilities_of_all_label_sets_sum_to_one(loss):
    total = probabilities_of_sets(loss, drawn(loss)).sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-12, atol=0)


@each_loss
def test_the_link_gives_the_marginals(loss):
    scores = drawn(loss)
    torch.testing.assert_close(
        loss.probabilities(scores), probabilities_of_sets(loss, scores) @ SETS, rtol=1e-10, atol=0
    )


@each_loss
def test_unknown_labels_are_summed_out(loss):
    scores = drawn(loss)
    shares = probabilities_of_sets(loss, scores)
    for targets in product([0.0, 1.0, -1.0], repeat=LABELS):
        row = torch.tensor(targets, dtype=torch.float64)
        if (row < 0).all():
            assert (loss.values(scores, row.expand(len(scores), -1)) == 0).all()
            continue
        agrees = ((row == SETS) | (row < 0)).all(1).double()
        found = torch.exp(-LABELS * loss.values(scores, row.expand(len(scores), -1)))
        torch.testing.assert_close(found, shares @ agrees, rtol=1e-10, atol=0)


@each_loss
def test_mixture_gives_the_same_distribution(loss):
    scores = drawn(loss)
    weights, chances = loss.mixture(scores)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(scores), dtype=torch.float64))
    each = torch.where(SETS[None, None] == 1, chances[:, :, None], 1 - chances[:, :, None]).prod(-1)
    found = (weights[:, :, None] * each).sum(1)
    torch.testing.assert_close(found, probabilities_of_sets(loss, scores), rtol=1e-9, atol=1e-15)


@each_loss
def test_gradients_are_those_of_the_value(loss):
    scores = drawn(loss).requires_grad_()
    targets = torch.tensor(
        [[1.0, 0, 0, 1], [0, 0, 0, 0], [0, -1, 0, 0], [1, -1, -1, 0], [0.3, 1, 0, 0]]
    )
    assert torch.autograd.gradcheck(lambda x: loss(x, targets.double()), scores)


def test_value_is_that_of_fifty_digits():
    loss = JointMixture(LABELS, 3, seed=5).double()
    scores = drawn(loss, rows=1, seed=2)
    with mpmath.workdps(50):
        own = [mpmath.mpf(float(x)) for x in scores[0]]
        offsets = [[mpmath.mpf(float(x)) for x in row] for row in loss.offsets.tolist()]
        gate = [mpmath.exp(x) for x in own[LABELS : LABELS + 3]]
        weights = {}
        for chosen in product([0, 1], repeat=LABELS):
            mass = mpmath.mpf(0)
            for part, delta in zip(gate, offsets, strict=True):
                for label, there in enumerate(chosen):
                    odds = mpmath.exp(own[label] + delta[label])
                    part *= (odds if there else 1) / (1 + odds)
                mass += part
            weights[chosen] = mass * (1 if any(chosen) else mpmath.exp(own[-1]))
        total = sum(weights.values())
        for chosen, mass in weights.items():
            expected = -mpmath.log(mass / total) / LABELS
            found = loss(scores, torch.tensor([chosen], dtype=torch.float64)).item()
            assert found == pytest.approx(float(expected), rel=1e-13)


def test_one_component_without_offsets_is_bce():
    loss, scores = LOSSES[0], drawn(LOSSES[0])
    scores[:, LABELS:] = 0
    targets = (torch.rand(5, LABELS) < 0.4).double()
    torch.testing.assert_close(loss(scores, targets), BCE()(scores[:, :LABELS], targets))
    torch.testing.assert_close(loss.log_odds(scores), scores[:, :LABELS])


@each_loss
def test_the_minimiser_of_the_risk_has_the_true_marginals(loss):
    rng = np.random.default_rng(3)
    truth = torch.from_numpy(rng.dirichlet(np.full(len(SETS), 0.7)))
    scores = drawn(loss, rows=1, scale=0.5).requires_grad_()
    targets = SETS
    search = torch.optim.LBFGS(
        [scores, *loss.parameters()], max_iter=500, line_search_fn="strong_wolfe"
    )
    before = loss.offsets.detach().clone()

    def risk():
        search.zero_grad()
        value = (truth * loss.values(scores.expand(len(SETS), -1), targets)).sum()
        value.backward()
        return value

    search.step(risk)
    found = loss.probabilities(scores)[0].detach()
    with torch.no_grad():
        loss.offsets.copy_(before)
    torch.testing.assert_close(found, truth @ SETS, atol=2e-3, rtol=0)


@each_loss
@pytest.mark.parametrize("size", [50.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_extreme_scores_give_finite_values_and_gradients(loss, size, dtype):
    loss = JointMixture(LABELS, loss.components, loss.spread, loss.seed)
    for signs in product([-1.0, 1.0], repeat=LABELS):
        row = torch.tensor([*signs, *[0.0] * loss.components, -1.0]) * size
        for targets in (SETS.float(), torch.full((16, LABELS), -1.0), -SETS.float()):
            scores = row.to(dtype).expand(16, -1).clone().requires_grad_()
            value = loss(scores, targets)
            value.backward()
            assert torch.isfinite(value)
            assert torch.isfinite(scores.grad).all()
            assert not torch.isnan(loss.log_odds(scores)).any()


@each_loss
def test_initial_scores_have_the_rates(loss):
    rates = torch.tensor([0.01, 0.2, 0.5, 0.93])
    start = loss.initial_scores(rates)
    assert start.shape == (loss.num_outputs(LABELS),)
    torch.testing.assert_close(loss.probabilities(start[None].double())[0].float(), rates)


def test_the_number_of_labels_comes_from_the_context():
    assert from_name("joint(components=2)", num_labels=7).num_outputs(7) == 10
    with pytest.raises(InputError, match="needs num_labels"):
        from_name("joint")


def test_bad_input_is_refused():
    loss = JointMixture(LABELS, 3)
    with pytest.raises(InputError, match="must have one column per label, 3 of the gate"):
        loss(torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(InputError, match="was made for 4 labels"):
        loss.num_outputs(5)
    with pytest.raises(InputError, match="`components` must be"):
        JointMixture(LABELS, 0)


def test_learns_dependence_that_independent_labels_cannot():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 2, generator=generator)
    first = torch.rand(4000, generator=generator) < torch.sigmoid(inputs[:, 0])
    copied = torch.rand(4000, generator=generator) < 0.9
    targets = torch.stack([first, first == copied], dim=1).float()  # the second mostly repeats it
    losses = {}
    for loss in (BCE(), JointMixture(2, 4)):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, loss.num_outputs(2))
        search = torch.optim.Adam([*model.parameters(), *loss.parameters()], 0.05)
        for _ in range(300):
            search.zero_grad()
            loss(model(inputs), targets).backward()
            search.step()
        losses[loss.name] = loss(model(inputs), targets).item()
    exact = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1)) / 2
    assert losses["joint"] < losses["bce"] - 0.1
    assert losses["joint"] < 0.32 + exact  # the first label's own uncertainty, and the copy's


def test_label_pairs_around_it_are_refused():
    with pytest.raises(InputError, match="must not be a joint likelihood"):
        LabelPairs(JointMixture(LABELS, components=2))
    with pytest.raises(InputError, match="must not be a joint likelihood"):
        from_name("joint+lpr", num_labels=4)


def test_the_command_audits_it_as_strictly_proper(capsys):
    assert main(["audit", "joint(components=2)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["properness"] == "strict"
