"""One training run: everything that decides how it comes out."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cell:
    """``settings`` differ from the defaults of ``credibly train``; seed is also the split's."""

    data: str
    settings: tuple[tuple[str, Any], ...]
    seed: int
    trial: bool = False
    """A trial is judged on held-out rows; nothing of its test rows is looked at."""

    @classmethod
    def of(cls, data: str, settings: dict[str, Any], seed: int, trial: bool = False) -> Cell:
        return cls(data, tuple(sorted(settings.items())), seed, trial)

    @property
    def key(self) -> str:
        return json.dumps([self.data, dict(self.settings), self.seed, self.trial])

    @property
    def command(self) -> str:
        """What a person would type; names with a colon or an at are made by ``sets.py``."""
        flags = [f"--{name.replace('_', '-')} {_text(value)}" for name, value in self.settings]
        name = f"{self.data}.npz" if self.data.isalnum() and self.data[0] not in "d" else self.data
        return (
            f"credibly train {name} {' '.join(flags)} --seed {self.seed} --split-seed {self.seed}"
        )


def _text(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) and not value.isalnum() else str(value)
