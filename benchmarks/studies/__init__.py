"""Experiments whose tables stand in the documentation: ``python -m benchmarks.studies.NAME``."""
