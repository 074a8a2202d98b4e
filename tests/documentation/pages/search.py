"""Held-out rows under short names, and a folder for images."""

from pathlib import Path

p, y = held_out.probabilities, held_out.targets  # noqa: F821
Path("photos").mkdir()
