"""The claims on networks trained end to end on real images (``make claims NETWORKS=1``).

methods   what is trained, in which order
"""

from benchmarks.claims.networks.methods import SETUPS, methods

__all__ = ["SETUPS", "methods"]
