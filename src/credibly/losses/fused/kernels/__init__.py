"""Loops of the losses on the CPU, compiled by numba on first use and kept on disk."""
