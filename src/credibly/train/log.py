"""What happened in each epoch, one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from credibly.checks import InputError
from credibly.files import atomic_path


class Log:
    """``log.jsonl`` of a run, and TensorBoard events where asked for.

    An epoch that is done again after a crash replaces its line, so the file always reads as one
    uninterrupted run.
    """

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        self.path = folder / "log.jsonl"
        read_log(self.path)  # a damaged log is an error before any work is done
        self.events = _events(folder / "tensorboard") if tensorboard else None

    def add(self, figures: dict[str, Any]) -> None:
        """Append one epoch's figures; ``figures["epoch"]`` counts from 1."""
        lines = [line for line in read_log(self.path) if line["epoch"] < figures["epoch"]]
        with atomic_path(self.path) as beside:
            text = "".join(json.dumps(line) + "\n" for line in [*lines, figures])
            beside.write_text(text, encoding="utf-8")
        if self.events is not None:
            for name in sorted(set(figures) - {"epoch"}):
                self.events.add_scalar(name, figures[name], figures["epoch"])
            self.events.flush()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the epochs of a run so far, from its ``log.jsonl``; none if there is no file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = path.write_text('{"epoch": 1, "nll": 0.25}\\n')
        >>> read_log(path)
        [{'epoch': 1, 'nll': 0.25}]

    Raises:
        InputError: for a line that is not the JSON object of an epoch.
    """
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_epoch(path, number, line) for number, line in enumerate(lines, start=1) if line]


def _epoch(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        figures = json.loads(line)
    except (ValueError, RecursionError):
        figures = None
    if not isinstance(figures, dict) or not isinstance(figures.get("epoch"), int):
        raise InputError(
            f"{path}, line {number} must be a JSON object with `epoch`; got {line[:40]!r}. Remove "
            "the line: the run goes on without it."
        )
    return figures


def _events(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            f"`tensorboard` needs the tensorboard package ({error}). "
            "Install it with `pip install tensorboard`, or leave the option out."
        ) from error
    return SummaryWriter(str(folder))
