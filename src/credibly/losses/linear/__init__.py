"""Last layer and loss in one, over chunks of labels: scores of all labels are never stored.

``function``   ``fused_linear`` and its gradient
``chunks``     scores and targets of one chunk of labels after the other
``entries``    losses of single entries
``rows``       softmax, two-way and quasibinary: sums over all labels first, then the gradient
"""

from credibly.losses.linear.function import fused_linear

__all__ = ["fused_linear"]
