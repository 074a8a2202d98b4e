"""``python -m fuzz TARGET --runs N | --seconds N``, or ``python -m fuzz all --minutes N``."""

from __future__ import annotations

import argparse
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

from fuzz import targets

RECORD = Path(__file__).with_name("record.json")
MEMORY_MB = 3000
SECONDS_AN_INPUT = 100
"""By the clock: at a low priority on a busy machine a second of work can take a minute."""


def main() -> None:
    """Run one campaign; libFuzzer ends the process with its own exit code."""
    names = sorted(module.name for module in pkgutil.iter_modules(targets.__path__))
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=[*names, "all"])
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--runs", type=int, help="inputs to try")
    length.add_argument("--seconds", type=int, help="time to spend")
    length.add_argument("--minutes", type=float, help="with all: shared between the targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=4096, help="bytes of an input")
    length.add_argument("--input", type=Path, help="try this one file alone, without the fuzzer")
    asked = parser.parse_args()
    if (asked.target == "all") != (asked.minutes is not None):
        parser.error("--minutes goes with all; a single target takes --runs or --seconds.")
    if asked.target == "all":
        sys.exit(_all(names, asked.minutes, asked.seed))
    if asked.input is not None:
        import_module(f"fuzz.targets.{asked.target}").Target().attempt(asked.input.read_bytes())
        return
    _campaign(asked)


def _all(names: list[str], minutes: float, seed: int) -> int:
    """Run every target for its share of the time; add what was tried to fuzz/record.json."""
    seconds = max(1, round(60 * minutes / len(names)))
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    failed = False
    for name in names:
        command = [sys.executable, "-m", "fuzz", name, "--seconds", str(seconds)]
        done = subprocess.run([*command, "--seed", str(seed)], capture_output=True, text=True)
        units = re.search(r"number_of_executed_units: *(\d+)", done.stderr)
        record[name] = record.get(name, 0) + (int(units[1]) if units else 0)
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {record[name]:,} executions, exit code {done.returncode}", flush=True)
        if done.returncode:
            failed = True
            print(done.stderr[-2000:])
    return int(failed)


def _campaign(asked: argparse.Namespace) -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("fuzzing needs atheris: `pip install atheris` (Linux, CPython; ≥ 3.0 for 3.11).")
    module = import_module(f"fuzz.targets.{asked.target}")
    with atheris.instrument_imports(include=list(module.MODULES), exclude=_compiled()):
        for name in module.MODULES:
            import_module(name)
    target = module.Target()
    corpus = Path(tempfile.mkdtemp(prefix=f"fuzz-{asked.target}-"))
    for number, seed in enumerate(target.seeds()):
        target.attempt(seed)  # what is imported on first use takes longer than an input may
        (corpus / f"seed-{number}").write_bytes(seed)
    length = f"-runs={asked.runs}" if asked.runs else f"-max_total_time={asked.seconds}"
    arguments = [
        *("fuzz", str(corpus), length, f"-seed={asked.seed}", f"-max_len={asked.max_length}"),
        *(f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1"),
        *("-malloc_limit_mb=0", "-verbosity=0"),
        f"-artifact_prefix={tempfile.gettempdir()}/fuzz-{asked.target}-",
    ]
    warnings.simplefilter("ignore")
    atheris.Setup(arguments, target.attempt)
    atheris.Fuzz()


def _compiled() -> list[str]:
    """Modules with compiled functions, which cannot be watched."""
    import credibly

    root = Path(credibly.__file__).parent
    compiles = re.compile(r"^(import|from) (numba|credibly\.compiled)\b", re.MULTILINE)
    return [
        ".".join(("credibly", *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
        if compiles.search(path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    main()
