"""The long form: many deaths of every command; counts as JSON and as a table.

    python tests/faults/long.py [--kills 25] [--seed 0] [--out faults.json]

Ends with 1 if anything was broken, different or failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

from fault_kills import kill_often, undisturbed
from fault_world import CASES, make_world


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill every command at many seeded instants.")
    parser.add_argument("--kills", type=int, default=25, help="deaths of each command")
    parser.add_argument("--seed", type=int, default=0, help="seed of the instants")
    parser.add_argument("--only", choices=CASES, help="one command")
    parser.add_argument("--out", default="faults.json", help="where the counts go")
    given = parser.parse_args()
    names = [given.only] if given.only else list(CASES)
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        world = make_world(Path(folder) / "world")
        print(f"{'command':<10} {'killed':>7} {'finished after':>15}  result")
        for name in names:
            place = Path(folder) / name
            reference = undisturbed(name, world, place)
            tally = kill_often(name, world, place, reference, given.kills, given.seed)
            counts[name] = {**dataclasses.asdict(tally), "sound": tally.sound}
            verdict = "identical, nothing broken" if tally.sound else str(counts[name])
            row = f"{name:<10} {tally.kills:>7} {tally.finished:>15}"
            print(f"{row}  {verdict} ({dict(sorted(tally.kinds.items()))})", flush=True)
            document = {"seed": given.seed, "commands": counts}
            Path(given.out).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{sum(each['kills'] for each in counts.values())} deaths in all")
    return 0 if all(each["sound"] for each in counts.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
