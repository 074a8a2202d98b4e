"""CPU loops of the losses, compiled by numba on first use and cached on disk."""
