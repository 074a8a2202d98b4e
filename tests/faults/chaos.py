"""Disturb every command for a given time, attack the server, and count.

    python tests/faults/chaos.py --minutes 60 --record chaos.json
    python tests/faults/chaos.py --attacks kill,power --only train --minutes 5
    python tests/faults/chaos.py --table tests/faults/records

Attacks on the server and hostile files (the attack "server") are those of the tests named in
``SERVER_TESTS``, once around between two rounds of the commands; each case counts as one try.

A record is added to: a campaign that was stopped goes on where it was, with new instants. Ends with
1 if anything was broken, different, failed or left over.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_kills import RENAMES, Tally, fail_often, kill_often, lose_power_often, undisturbed
from fault_world import CASES, make_world

from credibly.types import JsonObject

IN_A_ROUND = 4
Record = dict[str, dict[str, JsonObject]]
"""Counts by attack and command."""
ROOT = Path(__file__).parents[2]
ATTACKS: dict[str, Callable[..., Tally]] = {
    "kill": kill_often,
    "error": fail_often,
    "power": lose_power_often,
}
RECORDS = Path(__file__).parent / "records"
SERVER_TESTS = {
    "hostile files": ["tests/hostile"],
    "slow, many, huge and ambiguous requests": ["tests/app/security/test_security_connections.py"],
    "other sites, injected names": [
        "tests/app/security/test_security_foreign.py",
        "tests/app/security/test_security_injected.py",
    ],
    "image bombs, large bodies": ["tests/app/test_serve_attacks.py"],
    "crossed queries, full queues": [
        "tests/app/test_serve_queues.py",
        "tests/retrieve/test_retrieve_work.py",
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    attacks = ",".join((*ATTACKS, "server"))
    parser.add_argument("--attacks", default=attacks, help="which, by commas")
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
    references: JsonObject = {}
    for attack, name in _rounds(given.attacks.split(","), given.only):
        if time.monotonic() > end:
            break
        if attack == "server":
            before = record.setdefault(attack, {}).setdefault(name, {"rounds": 0})
            broken = _attack_server(name, before, end - time.monotonic())
            given.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{_total(record)} faults; {attack} {name}: {before}")
            if broken:
                print(broken)
                return 1
            continue
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
    commands = [attack for attack in attacks if attack in ATTACKS]
    while True:
        for name in [only] if only else CASES:
            for attack in commands:
                # Inside the workers of --jobs nothing can be replaced: they are killed alone.
                if attack == "kill" or name in RENAMES:
                    yield attack, name
        if "server" in attacks:
            yield from (("server", name) for name in SERVER_TESTS)


def _attack_server(name: str, before: JsonObject, seconds: float) -> str:
    """Run the tests of one kind of attack; return what pytest said if any failed, else nothing."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *SERVER_TESTS[name]]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=max(60, seconds), check=False
        )
    except subprocess.TimeoutExpired:
        return ""  # time is up; nothing is counted
    said = ended.stdout.strip().splitlines()[-1:]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", " ".join(said))}
    wrong = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    passed = counts.get("passed", 0)
    if not passed + wrong:
        return ended.stdout + ended.stderr
    before["rounds"] += 1
    for key, count in (("faults", passed + wrong), ("finished", passed), ("wrong", wrong)):
        before[key] = before.get(key, 0) + count
    return ended.stdout if wrong else ""


def _add(before: JsonObject, tally: Tally) -> None:
    found = dataclasses.asdict(tally)
    before["rounds"] += 1
    before["faults"] = before.get("faults", 0) + found["kills"]
    before["finished"] = before.get("finished", 0) + found["finished"]
    wrong = sum(len(found[key]) for key in ("stale", "broken", "different", "failed"))
    before["wrong"] = before.get("wrong", 0) + wrong
    kinds = before.setdefault("kinds", {})
    for kind, count in found["kinds"].items():
        kinds[kind] = kinds.get(kind, 0) + count


def _total(record: JsonObject) -> int:
    return sum(each.get("faults", 0) for found in record.values() for each in found.values())


def read_records(folder: Path) -> Record:
    """Return the sums of all records in a folder, by attack and command."""
    total: Record = {}
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
    "memory": "out of memory (`RLIMIT_AS`)",
    "server": "attack on the server, hostile file",
    "error, in a writer": "each operation of a writer fails in turn",
    "power, in a writer": "power lost at each operation of a writer",
}


def totals(records: Record) -> str:
    """Return the sums over commands, as docs/benchmarks/reliability.md shows them."""
    lines = ["| fault | times | wrong |", "|---|---:|---:|"]
    for attack, words in WORDS.items():
        found = [each for each in records.get(attack, {}).values() if each["faults"]]
        sums = [sum(each[key] for each in found) for key in ("faults", "wrong")]
        lines.append(f"| {words} | {sums[0]:,} | {sums[1]:,} |")
    return "\n".join(lines)


def table(records: Record) -> str:
    """Return the counts as the table of benchmarks/results/reliability.md."""
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
