"""Run the units of a plan that have no record: ``python -m benchmarks.long_runs [--list]``.

Units run one after the other, each in a process with one thread and a low priority, at the
commit that the plan names: a git worktree with an environment of its own, under ``--work``. Without
a commit they run in this checkout. Stop it at any time, by any signal; the next call goes on. A
unit that was interrupted goes on from its last checkpoint.

CREDIBLY_DATA names the folder of the evaluation sets (default: ``../shared/data`` beside the
repository), CREDIBLY_ASSETS that of weights and further sets (default: ``../assets``).
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import fnmatch
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.long_runs import records
from benchmarks.long_runs.plan import Plan, Unit

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMBA", "NUMEXPR")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_runs", description=__doc__)
    parser.add_argument("--plan", type=Path, default=ROOT / "benchmarks" / "long_runs.toml")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--work", type=Path, default=ROOT / ".long-runs")
    parser.add_argument("--limit", type=int, help="stop after so many units")
    parser.add_argument("--only", default="*", help="run units whose id matches this pattern")
    parser.add_argument("--nice", type=int, default=19, help="niceness of the units (default: 19)")
    parser.add_argument("--list", action="store_true", help="show what is done and what is left")
    arguments = parser.parse_args()
    plan = Plan.read(arguments.plan)
    if arguments.list:
        print(listing(plan, records.read(arguments.results)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the same command goes on"))
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"Another process runs the units of {work}. Wait for it, or stop it first.")
        os.nice(arguments.nice)
        return run(plan, arguments.results.resolve(), work, arguments.limit, arguments.only)


def run(plan: Plan, results: Path, work: Path, limit: int | None, only: str = "*") -> int:
    """Run units until all have a record, or ``limit`` of them; return how many failed.

    Args:
        only: Pattern of the ids of units to run, for example ``"coco-*/seed=0"``. The order of the
            plan holds among them. A unit whose trials have no record is not run.
    """
    checkout, python = prepared(plan.commit, work)
    done, failed = 0, set()
    while limit is None or done + len(failed) < limit:
        known = records.read(results)
        left = (u for u in plan.units(known) if u.id not in known and u.id not in failed)
        unit = next((u for u in left if fnmatch.fnmatchcase(u.id, only)), None)
        if unit is None:
            break
        folder = work / "units" / (plan.commit or "checkout")[:12] / unit.id
        print(f"{unit.id} …", flush=True)
        record = performed(unit, folder, checkout, python)
        if record is None:
            failed.add(unit.id)
            print(f"  failed; see {folder / 'log.txt'}", flush=True)
            continue
        records.append(results, {**record, "commit": plan.commit or "the working tree"})
        done += 1
        print(f"  {record['cpu_seconds']} CPU seconds{summary(record)}", flush=True)
    print(f"{done} units finished, {len(failed)} failed")
    return len(failed)


def prepared(commit: str | None, work: Path) -> tuple[Path, str]:
    """Return the checkout of ``commit`` and the Python of its environment; make both once."""
    if commit is None:
        return ROOT, sys.executable
    checkout = work / commit[:12]
    if not checkout.exists():
        command = ["git", "worktree", "add", "--force", "--detach", str(checkout), commit]
        subprocess.run(command, cwd=ROOT, check=True)
    subprocess.run(["make", "setup"], cwd=checkout, check=True)
    return checkout, str(checkout / ".venv" / "bin" / "python")


def performed(unit: Unit, folder: Path, checkout: Path, python: str) -> dict[str, Any] | None:
    """Run a unit in a process of its own; return its record, None where it failed."""
    finished = folder / "record.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not finished.exists():  # else this process was killed before it appended the record
        records.write(folder / "unit.json", json.dumps(dataclasses.asdict(unit)).encode())
        command = [python, "-W", "ignore", "-m", "benchmarks.long_runs.unit"]
        places = {
            "CREDIBLY_DATA": str(ROOT.parent / "shared" / "data"),
            "CREDIBLY_ASSETS": str(ROOT.parent / "assets"),
        }
        # An inherited search path would put the code of another commit in front of the checkout's.
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        given = os.environ if checkout == ROOT else inherited
        with (folder / "log.txt").open("a") as log:
            process = subprocess.Popen(
                [*command, str(folder / "unit.json"), str(folder)],
                cwd=checkout,
                env={**places, **given, **ONE_THREAD},
                stdout=log,
                stderr=log,
            )
            try:
                code = process.wait()
            except BaseException:
                process.kill()
                process.wait()
                raise
        if code != 0:
            return None
    return json.loads(finished.read_text(encoding="utf-8"))


def summary(record: dict[str, Any]) -> str:
    """The held-out log loss at each read, for a person who looks on."""
    if "failed" in record:
        return f"; {record['failed']}"
    values = [
        f"{read['epoch']}: {read['held_out']['nll']:.4f}"
        for training in record["results"]
        for read in training["reads"]
    ]
    return f"; held-out log loss by epoch {', '.join(values)}"


def listing(plan: Plan, known: dict[str, records.Record]) -> str:
    """What is done and left by experiment, with CPU hours; those left are estimates."""
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    done: dict[str, list[float]] = defaultdict(list)
    for record in known.values():
        seconds[record["setup"], record["trial"]].append(record["cpu_seconds"])
        done[record["experiment"]].append(record["cpu_seconds"] / 3600)
    left: dict[str, list[float]] = defaultdict(list)
    lines = []
    for unit in plan.remaining(known):
        similar = seconds[unit.setup, unit.trial]
        hours = sum(similar) / len(similar) / 3600 if similar else unit.minutes / 60
        left[unit.experiment].append(hours)
        lines.append(f"  {unit.id}: {60 * hours:.0f} min")
    table = [
        f"{name}: {len(done[name])} units done in {sum(done[name]):.1f} CPU hours, "
        f"{len(left[name])} left, about {sum(left[name]):.1f} CPU hours"
        for name in sorted({*done, *left})
    ]
    return "\n".join([*table, "left, in this order:", *lines])


if __name__ == "__main__":
    sys.exit(main())
