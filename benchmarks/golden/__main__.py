"""Compare what commands and calls give with the golden record: ``python -m benchmarks.golden``.

Numbers agree to 1e-9 of their size, everything else exactly. A change that is wanted is written
into ``forced.toml`` with its reason: ``--accept KEY --why "one floor for all log losses"``, where
KEY is the beginning of the keys shown. ``--record`` makes the whole record anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

# One thread, set before torch and numba are loaded: sums depend on the number of threads.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

HERE = Path(__file__).parent
RECORD, FORCED = HERE / "record.json", HERE / "forced.toml"
TOLERANCE = 1e-9
ABSENT = "(absent)"

Leaves = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the calls, compare, and write what was asked for."""
    options = _parser().parse_args(argv)
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    found = run(options.only)
    if options.record:
        kept = {name: each for name, each in recorded.items() if name not in found}
        text = json.dumps({**kept, **found}, indent=0, sort_keys=True, ensure_ascii=False)
        RECORD.write_text(text + "\n", encoding="utf-8")
        print(f"recorded {sum(map(len, found.values()))} calls, {RECORD.stat().st_size:,} bytes")
        return 0
    compared = {name: calls for name, calls in recorded.items() if name in found}
    for name in sorted(set(recorded) - set(found)) if not options.only else []:
        print(f"{name}: not run here")
    forced = read_forced()
    changes = differences(leaves(compared), leaves(found))
    if options.accept:
        return accept(options.accept, options.why, changes, forced)
    return report(changes, forced, found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make golden", description=__doc__)
    parser.add_argument("--only", action="append", metavar="SET", help="a data set")
    parser.add_argument("--record", action="store_true", help="make the record anew")
    parser.add_argument("--accept", action="append", metavar="KEY", help="accept these changes")
    parser.add_argument("--why", help="why they are wanted")
    return parser


def run(only: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the results of the calls, by data set and name."""
    from benchmarks.golden.calls import DATA_SETS
    from benchmarks.golden.losses import losses
    from benchmarks.golden.world import World, tidy
    from credibly.workflows import warm_up

    # A first step may run before its loop is compiled, and its last bits then differ.
    warm_up()
    found: dict[str, dict[str, Any]] = {}
    for name, calls in {**DATA_SETS, "losses": losses}.items():
        if only and name not in only:
            continue
        start, results = process_time(), {}
        with TemporaryDirectory() as folder:
            for call, function in calls(World(Path(folder).resolve())):
                try:
                    results[call] = tidy(function(), Path(folder).resolve())
                except Exception as error:
                    results[call] = f"failed: {type(error).__name__}: {str(error)[:200]}"
        if results:
            found[name] = json.loads(json.dumps(results, sort_keys=True))
            print(f"{name}: {len(results)} calls, {process_time() - start:.0f} s", file=sys.stderr)
        else:
            print(f"{name}: skipped, what it needs is not here", file=sys.stderr)
    return found


def leaves(value: Any, key: str = "") -> Leaves:
    """Return single values by the path that leads to them."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = ((str(place), each) for place, each in enumerate(value))
    else:
        return {key: value}
    return {
        path: leaf
        for name, each in pairs
        for path, leaf in leaves(each, f"{key}/{name}" if key else str(name)).items()
    }


def differences(old: Leaves, new: Leaves) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ."""
    return {
        key: (old.get(key, ABSENT), new.get(key, ABSENT))
        for key in sorted({*old, *new})
        if not same(old.get(key, ABSENT), new.get(key, ABSENT))
    }


def same(one: Any, two: Any) -> bool:
    """Return whether two values agree: numbers to a billionth of their size."""
    numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in (one, two)]
    if not all(numbers):
        return type(one) is type(two) and one == two
    return one == two or (one != one and two != two) or abs(one - two) <= TOLERANCE * abs(one)


def report(changes: dict[str, Any], forced: dict[str, Any], found: dict[str, Any]) -> int:
    """Print what differs and is not forced; 1 if there is any."""
    calls = sum(map(len, found.values()))
    ran = tuple(f"{name}/" for name in found)
    expected = {key: change for each in forced.values() for key, change in each["changes"].items()}
    wrong = {
        key: change
        for key, change in changes.items()
        if key not in expected or not same(expected[key][1], change[1])
    }
    stale = [key for key in expected if key.startswith(ran) and key not in changes]
    for key, (old, new) in list(wrong.items())[:200]:
        print(f"{key}\n    recorded {old!r}\n    now      {new!r}")
    for key in stale[:50]:
        print(f"{key}: forced, but it has its old value")
    print(
        f"{calls} calls: {len(wrong)} values differ, {len(changes) - len(wrong)} as forced.toml "
        f"says" + (f", {len(stale)} of its changes are gone" if stale else "")
    )
    return 1 if wrong or stale else 0


def read_forced() -> dict[str, Any]:
    """Return the changes that are wanted, by key."""
    if not FORCED.exists():
        return {}
    entries = tomllib.loads(FORCED.read_text(encoding="utf-8")).get("forced", [])
    return {
        each["key"]: {
            "why": each["why"],
            "changes": {
                name: [json.loads(value) for value in pair]
                for name, pair in each["changes"].items()
            },
        }
        for each in entries
    }


def accept(
    prefixes: list[str], why: str | None, changes: dict[str, Any], forced: dict[str, Any]
) -> int:
    """Write the changes under these keys into ``forced.toml``."""
    if not why:
        print("say why: --why 'one floor for all log losses'", file=sys.stderr)
        return 2
    for prefix in prefixes:
        chosen = {key: list(change) for key, change in changes.items() if key.startswith(prefix)}
        if not chosen:
            print(f"nothing differs under {prefix!r}", file=sys.stderr)
            return 2
        for other in forced.values():
            for key in chosen:
                other["changes"].pop(key, None)
        earlier = forced.get(prefix, {"changes": {}})["changes"]
        forced[prefix] = {"why": why, "changes": {**earlier, **chosen}}
    write_forced({key: each for key, each in forced.items() if each["changes"]})
    return 0


def write_forced(forced: dict[str, Any]) -> None:
    """Write ``forced.toml``: one table per key, old and new values as JSON."""
    text = "".join(_toml(forced))
    FORCED.write_text("# Changes of the golden record that are wanted.\n" + text, encoding="utf-8")


def _toml(forced: dict[str, Any]) -> Iterator[str]:
    def quoted(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    for key, each in forced.items():
        yield f"\n[[forced]]\nkey = {quoted(key)}\nwhy = {quoted(each['why'])}\n[forced.changes]\n"
        for name, (old, new) in each["changes"].items():
            values = ", ".join(
                quoted(json.dumps(value, ensure_ascii=False)) for value in (old, new)
            )
            yield f"{quoted(name)} = [{values}]\n"


if __name__ == "__main__":
    sys.exit(main())
