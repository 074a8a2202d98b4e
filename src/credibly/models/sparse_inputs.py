"""First layers that take sparse rows (``Tensors`` of terms, values and starts) as well as dense.

Their weights are those of torch's own layers, so that a network trained on sparse rows is loaded,
exported and applied to dense rows like any other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from credibly.data.token_rows import Tensors


class Flatten(nn.Flatten):
    """``nn.Flatten``; sparse rows are flat."""

    def forward(self, inputs: Any) -> Any:
        return inputs if isinstance(inputs, Tensors) else super().forward(inputs)


class Dropout(nn.Dropout):
    """``nn.Dropout``; of sparse rows it drops values, since dropping a zero changes nothing."""

    def forward(self, inputs: Any) -> Any:
        if not isinstance(inputs, Tensors):
            return super().forward(inputs)
        return with_values(inputs, super().forward(inputs["values"]))


class Linear(nn.Linear):
    """``nn.Linear``; of sparse rows it reads the weights of the terms that occur.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> from credibly.data.token_rows import SparseRows
        >>> layer, rows = Linear(4, 2), csr_matrix([[0, 3.0, 0, 1.0]], dtype="float32")
        >>> dense = layer(torch.from_numpy(rows.toarray()))
        >>> bool(torch.allclose(layer(SparseRows(rows).batch(torch.arange(1).numpy())), dense))
        True
    """

    def forward(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, Tensors):
            return super().forward(inputs)
        product: Any = _Product.apply(
            self.weight, inputs["terms"], inputs["values"].to(self.weight.dtype), inputs["starts"]
        )
        return product + self.bias


class _Product(torch.autograd.Function):
    """Sparse rows times the transpose of a (outputs, terms) weight.

    The columns of terms that occur are copied beside each other: a batch has thousands of terms
    where the weight has hundreds of thousands.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, terms: Tensor, values: Tensor, starts: Tensor) -> Tensor:  # type: ignore[override]
        occurring, places = torch.unique(terms.long(), return_inverse=True)
        columns = weight.detach()[:, occurring].t().contiguous()
        ctx.save_for_backward(occurring, places, values, starts)
        ctx.terms = weight.shape[1]
        if not len(places):
            return weight.new_zeros(len(starts), len(weight))
        return nn.functional.embedding_bag(
            places, columns, starts.long(), mode="sum", per_sample_weights=values
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        occurring, places, values, starts = ctx.saved_tensors
        starts, device = starts.long(), gradient.device
        ends = torch.cat([starts[1:], torch.tensor([len(places)], device=device)])
        rows = torch.arange(len(starts), device=device).repeat_interleave(ends - starts)
        sums = gradient.new_zeros(len(occurring), gradient.shape[1])
        sums.index_add_(0, places, gradient[rows] * values[:, None])
        whole = gradient.new_zeros(gradient.shape[1], ctx.terms)
        whole[:, occurring] = sums.t()
        return whole, None, None, None


def with_values(inputs: Tensors, values: Tensor) -> Tensors:
    """Return the same terms with other values."""
    changed = Tensors(len(inputs), **inputs)
    changed["values"] = values
    return changed
