"""Short forms of the fuzzing campaigns: random and mutated inputs, refused or read, never worse."""

import contextlib
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import credibly as cr
from credibly.retrieve import parse

ROOT = Path(__file__).parents[2]
TARGETS = (
    *("arff", "coco", "csv", "images", "losses", "mat", "npz", "parquet", "query", "run"),
    *("tensors", "toml", "voc", "xc"),
)
FEW = {"run": 15, "parquet": 25, "coco": 25, "csv": 25}


@pytest.fixture(scope="module")
def attacks():
    """The harnesses of the fuzzer, without the fuzzer."""
    sys.path.insert(0, str(ROOT))
    try:
        return {name: import_module(f"fuzz.targets.{name}").Target() for name in TARGETS}
    finally:
        sys.path.remove(str(ROOT))


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_read_or_refused(name, attacks):
    attack = attacks[name]
    seeds = list(attack.seeds())
    for seed in seeds:
        attack.attempt(seed)

    @settings(
        max_examples=FEW.get(name, 60),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), st.integers(0, 2000), st.integers(0, 60), st.binary(max_size=40))
    def check(seed, start, length, inserted):
        start = 1 + start % len(seed)
        attack.attempt(seed[:start] + inserted + seed[start + length :])

    check()


QUERIES = {
    "open brackets": "(" * 50_000,
    "brackets": "(" * 5000 + "a" + ")" * 5000,
    "signs": "!" * 99_999 + "a",
    "labels": " ".join(f"+a{n}" for n in range(10_000)),
    "too long": "a" * 1_000_000,
    "quotes": '"' * 9999,
    "alternatives": " ".join(f"(a{n}|b{n})" for n in range(2000)),
}


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES.keys())
def test_absurd_queries_are_answered_in_a_moment(text):
    from credibly.retrieve.query.diagram import diagram

    start = time.process_time()
    with contextlib.suppress(cr.InputError):
        diagram(parse(text, labels=None))
    assert time.process_time() - start < 3


def test_a_long_unknown_label_is_not_compared_with_every_known_one():
    labels = [f"label {n} " + "x" * 300 for n in range(3000)]
    start = time.process_time()
    with pytest.raises(cr.InputError, match="unknown label"):
        parse('"' + "x" * 50_000 + '"', labels=labels)
    assert time.process_time() - start < 1
