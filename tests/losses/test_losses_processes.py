"""On many processes the losses give what one process gives on the union of the batches."""

from __future__ import annotations

import faulthandler
import gc
import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from credibly.losses import (
    AverageK,
    ExpectedPositive,
    LabelPairs,
    Quasibinary,
    RowLoss,
    TwoWay,
    TwoWayTerm,
    collectives,
)
from credibly.train.distributed import WholeLoss

LABELS = 5
# Unequal sizes; in one step some process has no labels, in another no rows at all.
SIZES = {2: [(5, 3), (2, 6), (7, 0)], 3: [(4, 1, 6), (3, 3, 2), (0, 5, 2)]}


class OwnTwoWay(TwoWay):
    """A user's subclass that changes nothing: it spans processes as its parent does."""


class OwnRows(RowLoss):
    """A user's own loss, which knows nothing of processes."""

    def row_values(self, scores, targets):
        known = targets >= 0
        return torch.where(known, (scores - targets) ** 2, 0.0).sum(1), known.any(1)


def losses():
    return {
        "two-way, subclassed": OwnTwoWay(),
        "quasibinary, running": Quasibinary(momentum=0.5, penalty="running"),
        "quasibinary with pairs": LabelPairs(Quasibinary(momentum=0.5)),
        "quasibinary with two-way": TwoWayTerm(Quasibinary(momentum=0.5)),
        "two-way, summed": TwoWay(reduction="sum"),
        "two-way": TwoWay(),
        "label-wise": TwoWay(ways="labels", temperature_neg=0.7, margin=0.3),
        "quasibinary": Quasibinary(momentum=0.5),
        "average-k": AverageK(2.4),
        "average-k, all": AverageK(LABELS),
        "expected-positive": ExpectedPositive(2.0),
    }


def union(step, rows, single_label):
    generator = torch.Generator().manual_seed(step)
    # Rounded scores: equal rows occur, so candidates tie within and across processes.
    scores = torch.randn(rows, 2 * LABELS, generator=generator, dtype=torch.float64).round()
    targets = (torch.rand(rows, LABELS, generator=generator) < 0.3).double()
    targets[0] = 0
    targets[-1, ::2] = -1
    if single_label:
        targets = torch.eye(LABELS, dtype=torch.float64)[targets.argmax(1)]
        targets[1] = -1
    return scores, targets


def work(rank, world, folder):
    """Every loss through three steps; values, gradients and state go to a file."""
    os.dup2(os.open(f"{folder}/{rank}.err", os.O_WRONLY | os.O_CREAT), 2)
    faulthandler.enable()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/start", rank=rank, world_size=world
    )
    found = {}
    for name, loss in losses().items():
        for step, sizes in enumerate(SIZES[world]):
            scores, targets = batch_of(loss, step, sizes)
            mine = scores.split(sizes)[rank].clone().requires_grad_()
            value = loss(mine, targets.split(sizes)[rank])
            value.backward()
            found[f"{name}/{step}/value"] = value.detach().numpy()
            found[f"{name}/{step}/gradient"] = mine.grad.numpy().copy()
            for key, state in loss.state_dict().items():
                found[f"{name}/{step}/{key}"] = state.numpy().copy()
        loss.eval()
        scores, targets = batch_of(loss, 0, SIZES[world][0])
        if rank == 0:  # evaluation is local: one process alone must not wait for the others
            found[f"{name}/eval"] = loss(scores, targets).detach().numpy()
    found |= {f"ddp/{key}": value for key, value in ddp_gradient(rank, SIZES[world][0]).items()}
    share = [batch_of(Quasibinary(), step, (3, 3, 3))[:2] for step in range(rank + 1)]
    fitted = Quasibinary().fit_state(share)
    found["fitted"] = fitted.normalizer.numpy()
    found |= gathered(rank, SIZES[world][0])
    np.savez(f"{folder}/{rank}.npz", **found)
    gc.collect()  # models of DistributedDataParallel hold on to the group
    dist.barrier()  # nobody leaves while another still speaks to it: gloo would abort
    dist.destroy_process_group()


def gathered(rank, sizes):
    """What a trainer computes for losses that do and do not span processes."""
    values = {}
    for loss in (OwnRows(), OwnTwoWay()):
        scores, targets = batch_of(loss, 0, sizes)
        if rank is not None:
            scores, targets = scores.split(sizes)[rank], targets.split(sizes)[rank]
        leaf = scores.clone().requires_grad_()
        value = WholeLoss(loss)(leaf, targets, torch.arange(len(leaf)))
        value.backward()
        values[f"trainer/{type(loss).__name__}/value"] = value.detach().numpy()
        values[f"trainer/{type(loss).__name__}/gradient"] = leaf.grad.numpy()
    return values


def batch_of(loss, step, sizes):
    scores, targets = union(step, sum(sizes), loss.single_label)
    if not loss.single_label and step == 1:
        targets[: sizes[0]] = 0  # the first process has a batch without labels
    return scores[:, : LABELS * loss.scores_per_label], targets


def ddp_gradient(rank, sizes):
    """Gradients of a linear model by DistributedDataParallel, as users have it."""
    gradients = {}
    for name, loss in losses().items():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, LABELS * loss.scores_per_label, dtype=torch.float64)
        features = torch.randn(sum(sizes), 3, dtype=torch.float64)
        targets = batch_of(loss, 0, sizes)[1]
        if rank is not None:
            model = DistributedDataParallel(model)
            features, targets = features.split(sizes)[rank], targets.split(sizes)[rank]
        loss(model(features), targets).backward()
        gradients[name] = next(iter(model.parameters())).grad.numpy()
    return gradients


@pytest.fixture(scope="module", params=[2, 3], ids=["two processes", "three processes"])
def found(request, tmp_path_factory):
    world = request.param
    folder = tmp_path_factory.mktemp(f"processes{world}")
    try:
        mp.spawn(work, args=(world, str(folder)), nprocs=world)
    except mp.ProcessExitedException as error:  # by a signal: say where, in the summary too
        said = " | ".join(path.read_text().replace("\n", " / ") for path in folder.glob("*.err"))
        raise AssertionError(f"{error}: {said}") from error
    ranks = []
    for rank in range(world):
        with np.load(folder / f"{rank}.npz") as file:
            ranks.append({key: file[key] for key in file.files})
    return world, ranks


@pytest.mark.parametrize("name", losses())
def test_loss_gradient_and_state_are_those_of_the_union(found, name):
    world, ranks = found
    loss = losses()[name]
    for step, sizes in enumerate(SIZES[world]):
        scores, targets = batch_of(loss, step, sizes)
        scores = scores.clone().requires_grad_()
        value = loss(scores, targets)
        value.backward()
        together = np.concatenate([rank[f"{name}/{step}/gradient"] for rank in ranks])
        np.testing.assert_allclose(together / world, scores.grad.numpy(), rtol=1e-11, atol=1e-15)
        for rank in ranks:
            assert rank[f"{name}/{step}/value"] == pytest.approx(value.item(), rel=1e-12)
            for key, state in loss.state_dict().items():
                assert rank[f"{name}/{step}/{key}"] == pytest.approx(state.item(), rel=1e-12)
                assert rank[f"{name}/{step}/{key}"] == ranks[0][f"{name}/{step}/{key}"]
    loss.eval()
    scores, targets = batch_of(loss, 0, SIZES[world][0])
    assert ranks[0][f"{name}/eval"] == pytest.approx(loss(scores, targets).item(), rel=1e-12)


@pytest.mark.parametrize("name", losses())
def test_distributed_data_parallel_gives_parameters_the_gradient_of_the_union(found, name):
    world, ranks = found
    expected = ddp_gradient(None, SIZES[world][0])[name]
    for rank in ranks:
        np.testing.assert_allclose(rank[f"ddp/{name}"], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", ["OwnRows", "OwnTwoWay"])
def test_a_trainer_gives_a_users_loss_the_union_of_the_batches(found, name):
    world, ranks = found
    expected = gathered(None, SIZES[world][0])
    together = np.concatenate([rank[f"trainer/{name}/gradient"] for rank in ranks])
    np.testing.assert_allclose(together / world, expected[f"trainer/{name}/gradient"], rtol=1e-11)
    for rank in ranks:
        value = rank[f"trainer/{name}/value"].item()
        assert value == pytest.approx(expected[f"trainer/{name}/value"].item(), rel=1e-12)


def test_an_exact_pass_over_shares_is_one_over_all(found):
    world, ranks = found
    batches = [
        batch_of(Quasibinary(), step, (3, 3, 3))
        for rank in range(world)
        for step in range(rank + 1)
    ]
    exact = Quasibinary().fit_state(batches).normalizer.item()
    assert [rank["fitted"].item() for rank in ranks] == [pytest.approx(exact, rel=1e-12)] * world


def test_alone_everything_is_the_identity():
    values = torch.tensor([[0.0, 1.0], [-torch.inf, -torch.inf]], requires_grad=True)
    assert collectives.process_count() == 1
    assert collectives.process_rank() == 0
    assert collectives.all_reduce_sum(values) is values
    assert collectives.all_gather(values)[0].equal(values)
    total = collectives.logsumexp(values, 1)
    torch.testing.assert_close(total, torch.logsumexp(values, 1))
    (grad,) = torch.autograd.grad(total[0], values)
    assert torch.isfinite(grad).all()
    assert torch.isneginf(collectives.logsumexp(values[:0], (0, 1)))
