"""One training run: everything that decides how it comes out."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Cell:
    """``settings`` differ from the defaults of ``credibly train``; ``seed`` is also the split's."""

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
        """What a person would type to have this run."""
        file = "rows.parquet" if "-images" in self.data else "rows.npz"
        made = f"python -m benchmarks.claims.sets '{self.data}' --seed {self.seed} --out {file}"
        given = [pair for pair in self.settings if pair[1] is not None]
        flags = " ".join(_flag(name, value) for name, value in given)
        return f"{made} && credibly train {file} {flags} --seed {self.seed} --out run"


def _flag(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    if isinstance(value, str):
        return f'--{flag} "{value}"' if "$" in value else f"--{flag} '{value}'"
    return f"--{flag} {value}"
