"""Change the code at random and count the changes that the tests notice.

``python -m benchmarks.mutants --package metrics --sample 10 --seed 1``. The code is copied and
changed there. A change is tried against the tests that enter the function it is in, the quickest
first, up to ``--seconds`` of them. What was tried is kept in the record and not tried again until
the file or the tests change. Survivors that change no behaviour are listed, with the reason, in
``equivalent.toml`` and not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.mutants.changes import Change, changes
from benchmarks.mutants.running import Watch, prepare, run

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.toml"

TESTS = {
    "calibrate": ["tests/calibrate"],
    "data": ["tests/data"],
    "decide": ["tests/decide"],
    "estimator": ["tests/estimators"],
    "review": ["tests/review", "tests/spread"],
    "losses": ["tests/losses"],
    "metrics": ["tests/metrics", "tests/spread"],
    "predictions": ["tests/predictions", "tests/spread"],
    "retrieve": ["tests/retrieve", "tests/cli_search"],
    "summaries": ["tests/report"],
    "targets": ["tests/targets"],
    "train": ["tests/train"],
    "workflows": ["tests/workflows", "tests/spread", "tests/cli"],
}
"""The tests of each package."""


def main(argv: list[str] | None = None) -> int:
    """Try a sample of changes in each package and print what survived."""
    options = _parser().parse_args(argv)
    packages = options.package or list(TESTS)
    unknown = sorted(set(packages) - set(TESTS))
    if unknown:
        print(f"no package {', '.join(unknown)}; there are: {', '.join(TESTS)}", file=sys.stderr)
        return 2
    record = _read_record(options.record)
    shares = {}
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("src", "tests", "benchmarks", "docs", "examples", "pyproject.toml"):
            kind = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            kind(ROOT / name, root / name)
        prepare(root)
        for package in packages:
            shares[package] = _package(package, root, options, record)
    print("\npackage       killed  of   equivalent  share")
    for package, (killed, tried, equal) in shares.items():
        share = f"{killed / tried:.0%}" if tried else "–"
        print(f"{package:12s} {killed:7d} {tried:3d} {equal:12d}  {share}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--package", action="append", help="by default all")
    parser.add_argument("--sample", type=int, default=10, help="changes per package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of tests per change")
    parser.add_argument("--at", metavar="FILE:LINE", help="only changes of this line, all of them")
    parser.add_argument("--record", type=Path, default=ROOT / ".mutants.jsonl")
    return parser


def _package(
    package: str, root: Path, options: Any, record: dict[str, Any]
) -> tuple[int, int, int]:
    """Return how many changes were killed, how many counted, how many are equivalent."""
    source = root / "src" / "credibly" / package
    files = sorted(source.rglob("*.py")) or [source.with_suffix(".py")]
    known = [
        change
        for file in files
        for change in changes(str(file.relative_to(root)), file.read_bytes())
    ]
    if options.at:
        chosen = [each for each in known if f"{each.path}:{each.line}".endswith(options.at)]
    else:
        chosen = random.Random(options.seed).sample(known, min(options.sample, len(known)))
    if not chosen:
        return 0, 0, 0
    tests = _watched(package, root, record, options.record)
    equal = {each["change"] for each in _equivalent()}
    killed = survived = equivalent = 0
    for change in chosen:
        found = _tried(change, root, tests, options, record)
        judged = not found["killed"] and change.key in equal
        killed += found["killed"]
        survived += not found["killed"] and not judged
        equivalent += judged
        if not found["killed"]:
            word = "equivalent" if judged else "SURVIVED"
            print(f"{word} {change.path}:{change.line}  ({found['tests']} tests)")
            print(f"    - {change.old}\n    + {change.new}", flush=True)
    return killed, killed + survived, equivalent


def _tried(
    change: Change, root: Path, tests: dict[str, Any], options: Any, record: dict[str, Any]
) -> dict[str, Any]:
    path = root / change.path
    source = path.read_bytes()
    chosen, seconds = _chosen(change, tests, options.seconds)
    content = hashlib.sha256(source + json.dumps(chosen).encode()).hexdigest()[:16]
    key = f"{change.key} @{change.start} {content}"
    if key not in record:
        try:
            path.write_bytes(change.apply(source))
            code, spent = run(root, chosen, 10 + 4 * seconds) if chosen else (0, 0.0)
        finally:
            path.write_bytes(source)
        record[key] = {"killed": code != 0, "tests": len(chosen), "seconds": round(spent, 1)}
        with options.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **record[key]}) + "\n")
    return record[key]


def _chosen(change: Change, tests: dict[str, Any], most: float) -> tuple[list[str], float]:
    """Return the tests that enter the function, the quickest first; all if none is seen to."""
    name = change.path.removeprefix("src/")
    place = [f"src/{name}", change.function]
    entered = [test for test, each in tests.items() if place in each["entered"]]
    chosen, spent = [], 0.0
    for test in sorted(entered or tests, key=lambda test: tests[test]["seconds"]):
        spent += tests[test]["seconds"]
        if spent > most and chosen:
            break
        chosen.append(test)
    return chosen, min(spent, most)


def _watched(package: str, root: Path, record: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the functions that each test enters, and its time; kept until a file changes."""
    folders = [each for each in TESTS[package] if (root / each).exists()]
    files = sorted(file for folder in [*folders, "src"] for file in (root / folder).rglob("*.py"))
    content = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    key = f"tests of {package} {content}"
    if key not in record:
        out = root / "watched.json"
        code, spent = run(root, folders, 1800, Watch(root, out))
        if code != 0:
            raise SystemExit(f"the tests of {package} must pass first; they fail: {folders}")
        record[key] = {"tests": json.loads(out.read_text(encoding="utf-8"))}
        print(f"{package}: {len(record[key]['tests'])} tests, {spent:.0f} s of CPU", flush=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **record[key]}) + "\n")
    return record[key]["tests"]


def _read_record(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {each.pop("key"): each for each in map(json.loads, lines)}


def _equivalent() -> list[dict[str, str]]:
    if not EQUIVALENT.exists():
        return []
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])


if __name__ == "__main__":
    sys.exit(main())
