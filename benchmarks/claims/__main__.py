"""``python -m benchmarks.claims [STUDY …] [--quick] [--jobs N] [--out FOLDER]``"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks.claims.plan import carry_out
from benchmarks.claims.runner import RESULTS, Book

STUDIES = ("calibrated", "two_way", "quasibinary", "average_k", "defaults")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("studies", nargs="*", help=f"some of {', '.join(STUDIES)}; all of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--setups", help="only these setups, separated by semicolons")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results")
    arguments = parser.parse_args()
    book = Book(arguments.out)
    for name in arguments.studies or STUDIES:
        study = import_module(f"benchmarks.claims.{name}")
        methods = study.methods()
        if arguments.setups:
            methods = [m for m in methods if m.setup in arguments.setups.split(";")]
        carry_out(methods, book, arguments.jobs)


if __name__ == "__main__":
    main()
