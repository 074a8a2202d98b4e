"""What is fuzzed: one file per target, each with ``MODULES`` and ``Target``."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Attack(ABC):
    """One way in: whole inputs to start from, and what reads them."""

    @abstractmethod
    def seeds(self) -> Iterable[bytes]:
        """Inputs that are accepted, or nearly."""

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read one input, as a user's call would."""

    def attempt(self, data: bytes) -> None:
        """Read one input; only a refusal that names what is wrong may come out."""
        from credibly import InputError

        with suppress(InputError, OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a file may be read with a remark
            self.read(data)


class FolderAttack(Attack):
    """An attack through files, in a folder of its own in memory."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=SCRATCH))

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, name: str, data: bytes) -> Path:
        """A file of the folder with this content."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path
