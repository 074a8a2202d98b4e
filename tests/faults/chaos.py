"""Disturb every command for a given time, and count.

    python tests/faults/chaos.py --minutes 60 --record chaos.json
    python tests/faults/chaos.py --attacks kill,power --only train --minutes 5
    python tests/faults/chaos.py --table tests/faults/records

A record is added to: a campaign that was stopped goes on where it was, with new instants. Ends with
1 if anything was broken, different, failed or left over.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_kills import RENAMES, Tally, fail_often, kill_often, lose_power_often, undisturbed
from fault_world import CASES, make_world

IN_A_ROUND = 4
ATTACKS: dict[str, Callable[..., Tally]] = {
    "kill": kill_often,
    "error": fail_often,
    "power": lose_power_often,
}
RECORDS = Path(__file__).parent / "records"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="which, by commas")
    parser.add_argument("--only", choices=CASES, help="one command")
    parser.add_argument("--record", type=Path, default=Path("chaos.json"), help="counts so far")
    parser.add_argument("--world", type=Path, help="folder for the files used; kept for next time")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="print a table of records")
    given = parser.parse_args()
    if given.table is not None:
        print(table(read_records(given.table)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return _campaign(given, given.world or Path(folder) / "world", Path(folder))


def _campaign(given: argparse.Namespace, world: Path, place: Path) -> int:
    end = time.monotonic() + 60 * given.minutes
    record = json.loads(given.record.read_text()) if given.record.exists() else {}
    if not (world / "joint.json").exists():
        make_world(world)
    references: dict[str, Any] = {}
    for attack, name in _rounds(given.attacks.split(","), given.only):
        if time.monotonic() > end:
            break
        if name not in references:
            references[name] = undisturbed(name, world, place / f"{len(references)}")
        before = record.setdefault(attack, {}).setdefault(name, {"rounds": 0})
        here = place / "round"
        tally = ATTACKS[attack](
            name, world, here, references[name], IN_A_ROUND, seed=1000 + before["rounds"]
        )
        _add(before, tally)
        given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        left = max(0.0, end - time.monotonic()) / 60
        print(f"{_total(record)} faults; {attack} {name}: {before}; {left:.0f} minutes left")
        if not tally.sound:
            print(tally)
            return 1
    return 0


def _rounds(attacks: list[str], only: str | None) -> Iterator[tuple[str, str]]:
    while True:
        for name in [only] if only else CASES:
            for attack in attacks:
                # Inside the workers of --jobs nothing can be replaced: they are killed alone.
                if attack == "kill" or name in RENAMES:
                    yield attack, name


def _add(before: dict[str, Any], tally: Tally) -> None:
    found = dataclasses.asdict(tally)
    before["rounds"] += 1
    before["faults"] = before.get("faults", 0) + found["kills"]
    before["finished"] = before.get("finished", 0) + found["finished"]
    wrong = sum(len(found[key]) for key in ("stale", "broken", "different", "failed"))
    before["wrong"] = before.get("wrong", 0) + wrong
    kinds = before.setdefault("kinds", {})
    for kind, count in found["kinds"].items():
        kinds[kind] = kinds.get(kind, 0) + count


def _total(record: dict[str, Any]) -> int:
    return sum(each.get("faults", 0) for found in record.values() for each in found.values())


def read_records(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the sums of all records in a folder, by attack and command."""
    total: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        for attack, commands in json.loads(path.read_text(encoding="utf-8")).items():
            for name, counts in commands.items():
                into = total.setdefault(attack, {}).setdefault(name, {"kinds": {}})
                for key in ("faults", "finished", "wrong"):
                    into[key] = into.get(key, 0) + counts.get(key, 0)
                for kind, count in counts.get("kinds", {}).items():
                    into["kinds"][kind] = into["kinds"].get(kind, 0) + count
    return total


WORDS = {
    "kill": "killed (SIGKILL)",
    "error": "an operation on its files fails (EIO, ENOSPC, EDQUOT, EROFS)",
    "power": "power lost",
    "error, in a writer": "each operation of a writer fails in turn",
    "power, in a writer": "power lost at each operation of a writer",
}


def table(records: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the counts as the table of docs/reliability.md."""
    lines = ["| fault | command | times | finished after | wrong |", "|---|---|---:|---:|---:|"]
    for attack in WORDS:
        commands = records.get(attack, {})
        done = {name: found for name, found in sorted(commands.items()) if found["faults"]}
        for name, found in done.items():
            cells = (found["faults"], found["finished"], found["wrong"])
            lines.append(f"| {WORDS[attack]} | `{name}` | {' | '.join(map(str, cells))} |")
        if done:
            keys = ("faults", "finished", "wrong")
            sums = [str(sum(found[key] for found in done.values())) for key in keys]
            lines.append(f"| **{WORDS[attack]}** | all | {' | '.join(sums)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
