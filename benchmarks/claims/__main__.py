"""Measure the claims of the four papers and write docs/papers/ and benchmarks/results/.

``python -m benchmarks.claims [STUDY …] [--networks] [--quick] [--jobs N] [--page-only]``
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.claims.plan import Method, carry_out
from benchmarks.claims.runner import RESULTS, Book

STUDIES = ("calibrated", "average_k", "quasibinary", "two_way", "defaults", "texts")
NETWORKS = ("networks",)
ROOT = Path(__file__).resolve().parents[2]
QUICK = ("scene", "emotions", "tinyimagenet:10", "tinyimagenet:tail", "emotions@search")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("studies", nargs="*", help=f"some of {', '.join(STUDIES)}; all of them")
    parser.add_argument(
        "--networks",
        action="store_true",
        help="the study of networks on images instead (needs CREDIBLY_ASSETS; hours)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--setups", help="only these setups, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="small sets, few epochs, two seeds")
    parser.add_argument(
        "--page-only", action="store_true", help="write the pages from what is there"
    )
    arguments = parser.parse_args()
    # Told to stop, leave as after Ctrl-C, so that no worker is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; the same command goes on"))
    # A quick look must never mix with the runs that the page in the documentation rests on.
    quick = ROOT / "artifacts" / "claims-quick"
    book = Book(quick / "results" if arguments.quick else RESULTS)
    root = quick if arguments.quick else ROOT
    studies = NETWORKS if arguments.networks else STUDIES
    for name in () if arguments.page_only else arguments.studies or studies:
        study = import_module(f"benchmarks.claims.{name}")
        methods: list[Method] = study.methods()
        if name in NETWORKS:
            methods += study.heads()
        if arguments.setups:
            methods = [m for m in methods if m.setup in arguments.setups.split(";")]
        if arguments.quick:
            methods = [_quick(m) for m in methods if m.setup in QUICK]
        if methods:
            carry_out(methods, book, arguments.jobs)
        if not arguments.quick and not arguments.setups:
            _further(name, book)
    from benchmarks.claims.page import write

    if arguments.quick:
        write(book, root, _quick, long_runs=quick / "long_runs")
    else:
        write(book, root)
    print(f"Wrote docs/papers/ and benchmarks/results/ in {root}")


def _further(name: str, book: Book) -> None:
    """What a study measures beside its runs; each is kept in a file of its own."""
    from benchmarks.claims import cost, diagram, normalizer, several_labels

    if name == "quasibinary":
        normalizer.measure(book.folder, normalizer.HEADS)
        diagram.measure(book)
        several_labels.measure(book)
    elif name == "average_k":
        cost.measure(book.folder)
    elif name == "networks":
        normalizer.measure(book.folder, normalizer.NETWORK)


def _quick(method: Method) -> Method:
    """The same with a fifth of the epochs, one trial and two seeds."""
    settings = dict(method.settings)
    if "epochs" in settings:
        settings["epochs"] = max(2, settings["epochs"] // 5)
    return dataclasses.replace(
        method, settings=settings, grid=method.grid[:1], seeds=method.seeds[:2]
    )


if __name__ == "__main__":
    main()
