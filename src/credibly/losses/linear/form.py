"""How a loss is computed over chunks of labels."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from credibly.losses.linear.chunks import ScoreChunks


class LinearForm(ABC):
    """A loss over chunks of labels, value and gradient."""

    @abstractmethod
    def run(self, chunks: ScoreChunks, needs_grad: bool, update_state: bool) -> Tensor:
        """Return the scalar; add the gradient of each chunk's scores if ``needs_grad``.

        Args:
            chunks: may be gone through several times; each time the scores are computed again.
            needs_grad: whether to call ``chunks.add_gradient``, once per chunk.
            update_state: whether the loss, in training, may remember this batch.
        """
