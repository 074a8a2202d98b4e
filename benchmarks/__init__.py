"""Timings behind the figures in docs: ``python -m benchmarks [name …]``."""
