"""Configuration files: of commands, and of runs."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.cli.command", "credibly.train.recipes")


class Target(FolderAttack):
    """``--config FILE`` of ``train`` and ``sets``, and a run's ``config.toml``."""

    def seeds(self) -> Iterable[bytes]:
        yield b'0data = "digits"\nloss = "spa+lpr"\nepochs = 3\nlr = 0.1\n'
        yield b'1predictions = "p.parquet"\naverage-size = 5.0\nout = "x"\n'
        yield b'2loss = "bce"\nmilestones = [0.5, 0.75]\nschedule = "step"\nseed = 3\n'
        yield b"2[a]\nb = {c = [1, {d = 2020-01-02T03:04:05Z}]}\n"

    def read(self, data: bytes) -> None:
        from credibly.cli import sets, train
        from credibly.cli.command import resolve
        from credibly.train.recipes import from_table
        from credibly.untrusted.documents import read_toml

        path = self.put("config.toml", data[1:])
        if data[:1] == b"2":
            from_table(read_toml(path), str(path))
        else:
            options = sets.Options if data[:1] == b"1" else train.Options
            resolve(options, {"config": str(path)})
