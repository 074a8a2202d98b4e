"""Memory that ends: a limit on the address space, stepped down over every command.

    python tests/faults/fault_memory.py --record tests/faults/records/memory.json

A limit leaves so many megabytes beyond what the process holds when everything is imported. The
command must give the right result or end with 2 and one sentence; where a compiled library ends
the process by a signal instead, that is counted apart. Files under final names must be the old
ones or whole new ones in every case, and the same command without a limit must then succeed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fault_kills import broken, undisturbed
from fault_process import Ended, Fault, run
from fault_world import CASES, Case, final_files, leftovers, make_world, results

STEPS = (1024, 256, 64, 32, 16, 8, 4, 2, 1, 0)  # megabytes


def _reads(*words: str) -> Callable[[Path, Path], list[str]]:
    return lambda world, out: [word.replace("WORLD", str(world)) for word in words]


MEMORY_CASES = CASES | {
    "evaluate": Case(_reads("evaluate", "WORLD/predictions.parquet", "--json")),
    "search": Case(_reads("search", "WORLD/predictions.parquet", "+cat -dog", "--json")),
    "search --joint": Case(
        _reads("search", "WORLD/predictions.parquet", "+cat -dog", "--json", "--joint")
    ),
    "check": Case(_reads("check", "WORLD/run")),
    "review": Case(_reads("review", "WORLD/predictions.parquet")),
}


@dataclass
class Starved:
    """Tries of one command, and how they ended."""

    faults: int = 0
    right: int = 0
    refused: int = 0
    aborted: int = 0
    finished: int = 0
    problems: list[str] = field(default_factory=list)


def starve(name: str, world: Path, place: Path, steps: tuple[int, ...] = STEPS) -> Starved:
    """Run a command under ever smaller limits."""
    case, found = MEMORY_CASES[name], Starved()
    known = undisturbed(name, world, place / "reference", case)
    said = (place / "reference/notes/stdout").read_bytes()
    allowed = [final_files(known.before), final_files(known.whole)]
    for step in steps:
        out, notes = place / "out", place / "notes"
        shutil.copytree(known.before, out)
        ended = run(case.command(world, out), Fault("memory", step * 2**20), notes)
        found.faults += 1
        lines = ended.stderr.strip().splitlines()
        printed = (notes / "stdout").read_text(encoding="utf-8")
        if ended.code == 0:
            found.right += 1
            # A command that writes files says where, and how long it took.
            if allowed[1] and results(out) != results(known.whole):
                found.problems.append(f"{step} MB: other results")
            if not allowed[1] and (notes / "stdout").read_bytes() != said:
                found.problems.append(f"{step} MB: another answer")
        elif ended.code == 2 and lines and all(line.startswith("credibly ") for line in lines):
            found.refused += 1  # one sentence, perhaps after a warning
        elif ended.code is not None and (ended.code < 0 or _ended_by_the_loader(ended)):
            found.aborted += 1
        else:
            found.problems.append(
                f"{step} MB: ended with {ended.code}: {ended.stderr[-1500:]}{printed[-1500:]}"
            )
        found.problems += [f"{step} MB: {each}" for each in broken(out, allowed)]
        if allowed[1] and ended.code != 0:
            again = run(case.command(world, out), Fault(), notes)
            found.finished += 1
            if again.code or results(out) != results(known.whole):
                found.problems.append(f"{step} MB, then none: {again.code} {again.stderr[-500:]}")
            stale = [each for each in leftovers(out) if not each.endswith(".lock")]
            found.problems += [f"{step} MB: {each} is left" for each in stale]
        shutil.rmtree(out)
    return found


def _ended_by_the_loader(ended: Ended) -> bool:
    """The C library ends a process that cannot have the variables of a new thread."""
    return ended.code == 127 and "cannot allocate memory for thread-local data" in ended.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=MEMORY_CASES, help="one command")
    parser.add_argument("--record", type=Path, help="file for the counts; added to")
    parser.add_argument("--world", type=Path, help="folder for the files used; kept for next time")
    given = parser.parse_args()
    record: dict[str, dict[str, dict[str, int]]] = {"memory": {}}
    if given.record is not None and given.record.exists():
        record = json.loads(given.record.read_text())
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        world = given.world or Path(folder) / "world"
        if not (world / "joint.json").exists():
            make_world(world)
        for number, name in enumerate([given.only] if given.only else MEMORY_CASES):
            counts = asdict(starve(name, world, Path(folder) / f"{number}"))
            problems = counts.pop("problems")
            record["memory"][name] = {**counts, "wrong": len(problems)}
            wrong += len(problems)
            print(name, record["memory"][name], *problems, sep="\n  ", flush=True)
            if given.record is not None:
                given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
