"""Disturb a command again and again; what stands after each fault, and what it all ends in."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fault_process import Ended, Fault, run
from fault_world import CASES, Case, final_files, leftovers, read_whole, results

# Renames of a whole run of each command, about: so far do the drawn instants reach.
RENAMES = {
    "train": 16,
    "train --workers 2": 16,
    "predict": 3,
    "calibrate": 1,
    "sets": 1,
    "compare": 35,
    "report": 1,
    "joint": 1,
    "export": 1,
}
IN_A_ROW = 4
LOST_POWER = 77


@dataclass
class Tally:
    """Faults of one command, and what was wrong after them (nothing, one hopes).

    ``kills`` counts the faults that took place, of whatever kind; ``escaped`` those that came too
    late, after the command had ended.
    """

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


def undisturbed(name: str, world: Path, place: Path, case: Case | None = None) -> Undisturbed:
    """Run a command once without faults; its case is that of the name unless given."""
    case, before, whole = case or CASES[name], place / "before", place / "whole"
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
    return _disturb(name, world, place, reference, kills, random.Random(f"{name} {seed}"), _instant)


def fail_often(
    name: str, world: Path, place: Path, reference: Undisturbed, errors: int, seed: int = 0
) -> Tally:
    """Let one operation of ``name`` on its files fail, ``errors`` times; it must say so."""
    draw = random.Random(f"errors of {name} {seed}")
    return _disturb(name, world, place, reference, errors, draw, _error)


def lose_power_often(
    name: str, world: Path, place: Path, reference: Undisturbed, losses: int, seed: int = 0
) -> Tally:
    """Lose power ``losses`` times while ``name`` runs or when it has ended."""
    draw = random.Random(f"power of {name} {seed}")
    return _disturb(name, world, place, reference, losses, draw, _power)


def _disturb(
    name: str,
    world: Path,
    place: Path,
    reference: Undisturbed,
    count: int,
    draw: random.Random,
    drawn: Callable[[random.Random, str, float], Fault],
) -> Tally:
    tally, case = Tally(), CASES[name]
    before, whole = reference.before, reference.whole
    allowed = [final_files(before), final_files(whole)]
    while tally.kills < count and tally.sound and tally.escaped < 3 * count + 20:
        out = place / "out"
        shutil.copytree(before, out)
        for _ in range(min(IN_A_ROW, count - tally.kills)):
            fault = drawn(draw, name, reference.seconds)
            ended = run(case.command(world, out), fault, place / "notes", watched=out)
            _note(tally, fault, ended)
            if ended.code == LOST_POWER:
                shutil.rmtree(out)
                shutil.move(place / "notes" / "after", out)
                if fault.at == 0 and results(out) != results(whole):
                    tally.broken.append("a finished result was lost")
            tally.broken += broken(out, allowed)
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
    kinds = ["delay", "delay", "sight", "sight", "flush", "rename", "renamed"]
    # With --jobs other processes write, in which nothing is replaced.
    kind = draw.choice(kinds if name in RENAMES else kinds[:4])
    if kind == "delay":
        return Fault(kind, draw.uniform(0, seconds))
    # A rename has two flushes, and about four changes to see: lock, temporary file, both gone.
    each = {"flush": 2, "sight": 4}.get(kind, 1)
    return Fault(kind, draw.randint(1, RENAMES.get(name, 10) * each))


def _error(draw: random.Random, name: str, seconds: float) -> Fault:
    # To write a file: lock made, file made, flushed, folder opened and flushed, renamed.
    return Fault("error", draw.randint(1, RENAMES[name] * 8))


def _power(draw: random.Random, name: str, seconds: float) -> Fault:
    at = 0 if draw.random() < 0.15 else draw.randint(1, RENAMES[name] * 5)
    return Fault("power", at, draw.randrange(2**32))


def _note(tally: Tally, fault: Fault, ended: Ended) -> None:
    if fault.kind == "error" and ended.code == 2:
        happened = "Traceback" not in ended.stderr and len(ended.stderr.strip().splitlines()) == 1
        if not happened:
            tally.failed.append(ended.stderr)
    else:
        happened = ended.code in (-signal.SIGKILL, LOST_POWER)
        if not happened and ended.code != 0:
            tally.failed.append(ended.stderr)
    if happened:
        tally.kills += 1
        tally.kinds[fault.kind] = tally.kinds.get(fault.kind, 0) + 1
    elif ended.code == 0:
        tally.escaped += 1


def broken(out: Path, allowed: list[dict[str, str]]) -> list[str]:
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
