"""The function that users call, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from credibly import checks
from credibly.losses.linear.chunks import AnyTargets, ScoreChunks, target_chunks, whole_targets

if TYPE_CHECKING:
    from credibly.losses.base import Loss
    from credibly.losses.linear.form import LinearForm


def fused_linear(
    loss: Loss, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: AnyTargets
) -> Tensor:
    """Return ``loss(hidden @ weight.T + bias, targets)`` without storing the scores.

    For many labels. Scores are computed for some labels at a time, turned into value and gradient,
    and dropped, so that memory holds the gradients of ``weight`` and little else. Gradients of
    ``hidden``, ``weight`` and ``bias`` are computed together with the value.

    Losses of single entries (`BinaryLoss`), `Softmax`, `TwoWay` and `Quasibinary` are computed so;
    the last three keep the scores of 128 MB between two passes and compute others twice. Any other
    loss needs the scores of all labels at once and gets them. Each process gets the loss of its own
    rows: a loss that sums over processes (`TwoWay`, `Quasibinary`) is refused where there are
    several in training.

    Args:
        loss: any loss.
        hidden: (rows, features), what the last layer sees.
        weight: (labels, features), as in ``nn.Linear``.
        bias: (labels,) or None.
        targets: (rows, labels) as any loss takes them, class indices of shape (rows,), or sparse:
            a ``credibly.targets.SparseTargets``, a torch sparse CSR tensor, or one list of label
            numbers per row.

    Returns:
        A scalar, or one value per entry or row with ``reduction="none"``. The gradient of a loss
        over chunks cannot be differentiated again.

    Raises:
        InputError: for targets that do not fit ``hidden`` and ``weight``.

    Example:
        >>> from credibly.losses import SPA
        >>> hidden, weight = torch.ones(2, 3), torch.zeros(5, 3, requires_grad=True)
        >>> value = fused_linear(SPA(), hidden, weight, None, [[0, 4], []])
        >>> value
        tensor(0.1464, grad_fn=<_FusedLinearBackward>)
        >>> value.backward()
        >>> weight.grad[0]
        tensor([-0.0472, -0.0472, -0.0472])
    """
    _check(hidden, weight, bias)
    form = loss.linear_form()
    if form is None or loss.reduction == "none":
        scores = torch.nn.functional.linear(hidden, weight, bias)
        return loss(scores, whole_targets(targets, scores))
    return _FusedLinear.apply(hidden, weight, bias, targets, form)  # pyright: ignore[reportReturnType]


def _check(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1]
    fits = fits and (bias is None or bias.shape == weight.shape[:1])
    if not fits or not hidden.is_floating_point() or not weight.is_floating_point():
        shown = "None" if bias is None else tuple(bias.shape)
        raise checks.InputError(
            "`hidden` must be (rows, features), `weight` (labels, features) and `bias` (labels,) "
            f"or None, floating point; got {tuple(hidden.shape)} {hidden.dtype}, "
            f"{tuple(weight.shape)} {weight.dtype} and {shown}."
        )


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: AnyTargets,
        form: LinearForm,
    ) -> Tensor:
        ctx.targets, ctx.form = targets, form
        ctx.save_for_backward(hidden, weight, bias)
        value, ctx.gradients = _run(ctx, (hidden, weight, bias), update_state=True)
        return value.to(torch.promote_types(hidden.dtype, weight.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:  # handed over in an earlier backward
            gradients = _run(ctx, ctx.saved_tensors, update_state=False)[1]
        if not (outer.is_cpu and outer.item() == 1.0):
            gradients = [None if each is None else each.mul_(outer) for each in gradients]
        return (*gradients, None, None)


def _run(ctx: Any, layer: Any, update_state: bool) -> tuple[Tensor, list[Tensor | None]]:
    hidden, weight, bias = layer
    needed: Any = tuple(ctx.needs_input_grad[:3])
    targets = target_chunks(ctx.targets, len(hidden), len(weight))
    chunks = ScoreChunks(hidden.detach(), weight.detach(), bias, targets, needed)
    value = ctx.form.run(chunks, any(needed), update_state)
    back = chunks.hidden_gradient
    back = None if back is None else back.to(hidden.dtype)
    return value, [back, chunks.weight_gradient, chunks.bias_gradient]
