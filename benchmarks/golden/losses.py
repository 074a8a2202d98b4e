"""Nine losses, each put through what users of torch rely on."""

from __future__ import annotations

import copy
import io
import math
import pickle
import warnings
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.golden.world import Calls, World, tidy
from credibly import losses as cl
from credibly.targets import SparseTargets

LOSSES: dict[str, Callable[[], Any]] = {
    "bce": cl.BCE,
    "focal": cl.Focal,
    "asl": cl.Asymmetric,
    "spa": cl.SPA,
    "twl": cl.TwoWay,
    "softmax": cl.Softmax,
    "quasibinary": cl.Quasibinary,
    "avgk": lambda: cl.AverageK(2.0),
    "spa+lpr": lambda: cl.LabelPairs(cl.SPA()),
}


def batch(loss: Any, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Six rows of five labels; a row without a label, and unknown entries."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(6, 5 * loss.scores_per_label, generator=generator, dtype=torch.float64)
    targets = (torch.rand(6, 5, generator=generator) < 0.4).double()
    if loss.single_label:
        targets = torch.eye(5, dtype=torch.float64)[torch.tensor([0, 3, 1, 4, 1, 2])]
    else:
        targets[0] = 0
    return scores.to(dtype), targets.to(dtype)


def with_unknowns(loss: Any) -> tuple[Tensor, Tensor]:
    """The same rows with unknown entries."""
    scores, targets = batch(loss)
    if loss.single_label:
        targets[1] = -1
    else:
        targets[1, 1:4], targets[4, 0] = -1, -1
    return scores, targets


def gradient(loss: Any, scores: Tensor, targets: Any, **arguments: Any) -> Any:
    """Value and gradient."""
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, targets, **arguments)
    value.sum().backward()
    return {"value": tidy(value), "gradient": tidy(leaf.grad)}


def typed(dtype: torch.dtype) -> Callable[[Any], Any]:
    """Value and gradient of scores of one type, with no more digits than it has."""
    digits = 3 if dtype == torch.float16 else 5

    def check(loss: Any) -> Any:
        scores, targets = batch(loss, dtype)
        value = loss(leaf := scores.requires_grad_(), targets)
        value.backward()
        assert leaf.grad is not None
        return {
            "value": float(f"{float(value):.{digits}g}"),
            "types": [str(value.dtype), str(leaf.grad.dtype)],
        }

    return check


def coded(convert: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    """Value and gradient with targets given in another form."""
    return lambda loss: gradient(loss, batch(loss)[0], convert(batch(loss)[1]))


def reduced(reduction: str) -> Callable[[Any], Any]:
    """Value and gradient by another reduction."""

    def check(loss: Any) -> Any:
        loss.reduction = reduction
        return gradient(loss, *with_unknowns(loss))

    return check


def weighted(loss: Any) -> Any:
    """Weights of rows."""
    return gradient(loss, *with_unknowns(loss), weight=torch.tensor([1.0, 0.5, 2, 1, 0, 1]))


def infinite(loss: Any) -> Any:
    """Infinite scores among others."""
    scores, targets = batch(loss)
    scores[1, 1], scores[2, 3] = math.inf, -math.inf
    return gradient(loss, scores, targets)


def empty(loss: Any) -> Any:
    """A batch without rows."""
    scores, targets = batch(loss)
    return gradient(loss, scores[:0], targets[:0])


def compiled(loss: Any) -> Any:
    """Compiled in one graph."""
    torch._dynamo.reset()
    return gradient(torch.compile(loss, backend="eager", fullgraph=True), *with_unknowns(loss))


def exported(loss: Any) -> Any:
    """``torch.export`` of the probabilities, which is what is deployed."""

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss = loss

        def forward(self, scores: Tensor) -> Tensor:
            return self.loss.probabilities(scores)

    scores, _ = batch(loss)
    return tidy(torch.export.export(Head().eval(), (scores,)).module()(scores))


def mapped(loss: Any) -> Any:
    """``vmap`` over scores and targets."""
    loss.eval()
    scores, targets = with_unknowns(loss)
    many, known = torch.stack([scores, scores.flip(0)]), torch.stack([targets, targets.flip(0)])
    return tidy(torch.func.vmap(loss)(many, known))


def functional(loss: Any) -> Any:
    """``torch.func.grad``."""
    loss.eval()
    scores, targets = with_unknowns(loss)
    return tidy(torch.func.grad(lambda v: loss(v, targets))(scores))


def meta(loss: Any) -> Any:
    """Tensors without memory."""
    scores, targets = batch(loss)
    value = loss.to("meta")(scores.to("meta").requires_grad_(), targets.to("meta"))
    return [value.is_meta, list(value.shape)]


def twice(loss: Any) -> Any:
    """Double backward."""
    scores, targets = with_unknowns(loss)
    leaf = scores.requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf, targets), leaf, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.pow(2).sum(), leaf)
    return tidy(curvature)


def autocast(loss: Any) -> Any:
    """Inside a region of mixed precision."""
    scores, targets = batch(loss, torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        value = loss(scores, targets)
    return [float(f"{float(value):.5g}"), str(value.dtype)]


def pickled(loss: Any) -> Any:
    """Through pickle, then ``torch.save``."""
    again = pickle.loads(pickle.dumps(loss))
    buffer = io.BytesIO()
    torch.save(again.state_dict(), buffer)
    buffer.seek(0)
    again.load_state_dict(torch.load(buffer))
    return gradient(again, *with_unknowns(loss))


def copied(loss: Any) -> Any:
    """A deep copy after one batch, for the losses that keep a state."""
    loss(*batch(loss))
    return gradient(copy.deepcopy(loss), *with_unknowns(loss))


def strided(loss: Any) -> Any:
    """Tensors that are not contiguous."""
    scores, targets = with_unknowns(loss)
    wide = torch.stack([scores, scores], 2).transpose(0, 1).contiguous().transpose(0, 1)[..., 0]
    return gradient(loss, wide, targets.t().contiguous().t())


def last_layer(loss: Any) -> Any:
    """Last layer and loss in one, with a matrix of targets and with lists of labels."""
    generator = torch.Generator().manual_seed(1)
    _, targets = batch(loss)
    hidden = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    found = {}
    for name, truth in {"dense": targets, "sparse": SparseTargets.from_dense(targets)}.items():
        leaf = weight.clone().requires_grad_()
        value = cl.fused_linear(loss, hidden, leaf, None, truth)
        value.backward()
        found[name] = {"value": tidy(value), "gradient": tidy(leaf.grad)}
    return found


def link(loss: Any) -> Any:
    """Log-odds and probabilities, also of extreme scores."""
    scores, _ = batch(loss)
    scores[0, 0], scores[1, 1], scores[2, 2] = 800, -800, 0
    return {
        "log-odds": tidy(loss.log_odds(scores)),
        "probabilities": tidy(loss.probabilities(scores)),
    }


CHECKS: dict[str, Callable[[Any], Any]] = {
    "value and gradient": coded(lambda y: y),
    "unknown entries": lambda loss: gradient(loss, *with_unknowns(loss)),
    "soft targets": coded(lambda y: 0.1 + 0.6 * y),
    "integer targets": coded(Tensor.long),
    "boolean targets": coded(Tensor.bool),
    "last layer": last_layer,
    "class indices": lambda loss: gradient(loss, batch(loss)[0], torch.tensor([0, 3, 1, 4, 1, 2])),
    "float32": typed(torch.float32),
    "float16": typed(torch.float16),
    "sum": reduced("sum"),
    "none": reduced("none"),
    "weights of rows": weighted,
    "empty batch": empty,
    "nothing known": coded(lambda y: torch.full_like(y, -1)),
    "infinite scores": infinite,
    "compiled": compiled,
    "exported": exported,
    "vmap": mapped,
    "func.grad": functional,
    "meta tensors": meta,
    "double backward": twice,
    "autocast": autocast,
    "pickled": pickled,
    "copied with state": copied,
    "strided": strided,
    "link": link,
}
"""What is checked of every loss, beside its value on two processes."""


def losses(world: World) -> Calls:
    """Every loss through every check."""
    del world
    for name, make in LOSSES.items():
        for check, function in CHECKS.items():
            yield f"{name}, {check}", lambda make=make, function=function: attempt(make, function)
    shared: dict[str, Any] = {}
    for name in LOSSES:
        yield f"{name}, two processes", lambda name=name: (shared or two_processes(shared))[name]


def attempt(make: Callable[[], Any], function: Callable[[Any], Any]) -> Any:
    """Return the result of a check, or the name of the error that is raised."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return tidy(function(make()))
        except Exception as error:
            return f"refused: {type(error).__name__}"


def two_processes(shared: dict[str, Any]) -> dict[str, Any]:
    """Value on two processes that hold unequal parts of the rows, one after the other."""
    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (folder,), nprocs=2)
        shared.update(torch.load(f"{folder}/found"))
    return shared


def _work(rank: int, folder: str) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/start", rank=rank, world_size=2)
    found = {}
    for name, make in LOSSES.items():
        loss = make()
        scores, targets = with_unknowns(loss)
        rows = slice(0, 4) if rank == 0 else slice(4, 6)
        found[name] = gradient(loss, scores[rows], targets[rows])
    if rank == 0:
        torch.save(found, f"{folder}/found")
    dist.barrier()
    dist.destroy_process_group()
