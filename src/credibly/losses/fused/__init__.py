"""Value and gradient of a loss in one pass.

``form``         what a fused form is, and how autograd uses it
``softplus``     BCE and SPA
``asymmetric``   asymmetric and focal loss
``two_way``      the two-way loss
``label_pairs``  the label pair regularizer
``spa_pairs``    SPA with label pairs
``kernels``      loops on the CPU, compiled by numba
"""

from credibly.losses.fused.form import FusedForm, force_torch

__all__ = ["FusedForm", "force_torch"]
