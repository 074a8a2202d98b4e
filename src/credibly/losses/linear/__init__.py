"""Last layer and loss together, over chunks of labels: the scores are never stored as a whole.

``chunks``  ``fused_linear``, scores and targets by chunk, and losses of single entries
``rows``    softmax, two-way and quasibinary: sums over all labels first, then the gradient
"""
