"""Last layer and loss in one, over chunks of labels: scores of all labels are never stored.

``chunks``  ``fused_linear``, scores and targets by chunk, and losses of single entries
``rows``    softmax, two-way and quasibinary: sums over all labels first, then the gradient
"""
