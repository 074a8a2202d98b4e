"""One training run: everything that decides how it comes out."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from benchmarks.claims.sets import kind_of_file


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
        file = f"rows.{kind_of_file(self.data)}"
        made = f"python -m benchmarks.claims.sets '{self.data}' --seed {self.seed} --out {file}"
        given = [*self.settings, ("seed", self.seed), ("split_seed", self.seed), ("out", "run")]
        flags = " ".join(_flag(name, value) for name, value in given if value is not None)
        return f"{made} && credibly train {file} {flags}"


def _flag(name: str, value: Any) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    if isinstance(value, str) and "$" in value:  # the shell fills it in
        return f'--{flag} "{value}"'
    return f"--{flag} {shlex.quote(str(value))}"
