"""Held-out rows under short names."""

p, y = held_out.probabilities, held_out.targets  # noqa: F821
