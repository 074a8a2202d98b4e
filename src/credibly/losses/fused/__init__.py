"""Compiled loops of the losses: value and gradient in one pass, on the CPU.

``form``         what a loop is to its loss, and how autograd uses it
``entries``      one loop for all losses of single entries; ``softplus`` and ``asymmetric`` have the
                 scalar functions that it takes
``label_pairs``  the label pair regularizer; ``pairs`` and ``chebyshev`` have its loops
``linked``       BCE or SPA together with label pairs
``two_way``      the two-way loss
``row_sums``     sums over the labels of a row, for the last layer in chunks
``memory``       access to tensors
"""

from credibly.losses.fused.form import FusedForm, force_torch

__all__ = ["FusedForm", "force_torch"]
