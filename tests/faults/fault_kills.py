"""Kill a command again and again; what stands after each death, and what it all ends in."""

from __future__ import annotations

import random
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

from fault_process import Fault, run
from fault_world import CASES, final_files, leftovers, read_whole, results

# Renames of a whole run of each command, about: so far do the drawn instants reach.
RENAMES = {"train": 16, "predict": 3, "calibrate": 1, "sets": 1, "compare": 35, "report": 1}
IN_A_ROW = 4


@dataclass
class Tally:
    """Deaths of one command, and what was wrong after them (nothing, one hopes)."""

    kills: int = 0
    escaped: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    finished: int = 0
    leftovers: int = 0
    stale: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.broken or self.different or self.failed or self.stale)


@dataclass(frozen=True)
class Undisturbed:
    """The folder of a command before and after a run without faults, and how long that took."""

    before: Path
    whole: Path
    seconds: float


def undisturbed(name: str, world: Path, place: Path) -> Undisturbed:
    """Run a command once without faults."""
    case, before, whole = CASES[name], place / "before", place / "whole"
    before.mkdir(parents=True)
    if case.begin:
        assert run(case.begin(world, before), Fault(), place / "notes").code == 0
    shutil.copytree(before, whole)
    ended = run(case.command(world, whole), Fault(), place / "notes")
    assert ended.code == 0, ended.stderr
    return Undisturbed(before, whole, ended.seconds)


def kill_often(
    name: str, world: Path, place: Path, reference: Undisturbed, kills: int, seed: int = 0
) -> Tally:
    """Kill ``name`` at ``kills`` seeded instants, up to four times in a row, then let it finish."""
    draw, tally, case = random.Random(f"{name} {seed}"), Tally(), CASES[name]
    before, whole = reference.before, reference.whole
    allowed = [final_files(before), final_files(whole)]
    while tally.kills < kills and tally.sound:
        out = place / "out"
        shutil.copytree(before, out)
        for _ in range(min(IN_A_ROW, kills - tally.kills)):
            fault = _instant(draw, name, reference.seconds)
            ended = run(case.command(world, out), fault, place / "notes", watched=out)
            _note(tally, fault, ended.code, ended.stderr)
            tally.broken += _broken(out, allowed)
            if ended.code == 0:  # what remained was done before the instant came
                break
        tally.leftovers += len(leftovers(out))
        ended = run(case.command(world, out), Fault(), place / "notes")
        tally.finished += 1
        if ended.code:
            tally.failed.append(ended.stderr)
        elif results(out) != results(whole):
            odd = set(results(out).items()) ^ set(results(whole).items())
            tally.different += sorted({path for path, _ in odd})
        tally.stale += [path for path in leftovers(out) if not path.endswith(".lock")]
        if tally.sound:  # otherwise it stays, to be looked at
            shutil.rmtree(out)
    return tally


def _instant(draw: random.Random, name: str, seconds: float) -> Fault:
    kind = draw.choice(["delay", "delay", "sight", "sight", "flush", "rename", "renamed"])
    if kind == "delay":
        return Fault(kind, draw.uniform(0, seconds))
    # A rename has two flushes, and about four changes to see: lock, temporary file, both gone.
    each = {"flush": 2, "sight": 4}.get(kind, 1)
    return Fault(kind, draw.randint(1, RENAMES[name] * each))


def _note(tally: Tally, fault: Fault, code: int | None, stderr: str) -> None:
    if code == -signal.SIGKILL:
        tally.kills += 1
        tally.kinds[fault.kind] = tally.kinds.get(fault.kind, 0) + 1
    elif code == 0:
        tally.escaped += 1
    else:
        tally.failed.append(stderr)


def _broken(out: Path, allowed: list[dict[str, str]]) -> list[str]:
    """Final-named files that are neither the old ones, nor the new ones, nor readable."""
    found = []
    for name, value in final_files(out).items():
        if value in (allowed[0].get(name), allowed[1].get(name)):
            continue
        if name in allowed[0]:
            found.append(f"{name}: neither the old file nor the new one")
            continue
        try:
            read_whole(out / name)
        except Exception as error:
            found.append(f"{name}: {error}")
    return found
