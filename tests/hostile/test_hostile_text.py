"""Short forms of the fuzzing campaigns: random and mutated inputs, refused or read, never worse."""

import contextlib
import pkgutil
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import credibly as cr
from credibly.retrieve import parse
from credibly.untrusted import budget

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
try:
    from fuzz import targets
finally:
    sys.path.remove(str(ROOT))
TARGETS = sorted(module.name for module in pkgutil.iter_modules(targets.__path__))
FEW = {"run": 15, "parquet": 25, "coco": 25, "csv": 25, "rest": 10}


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_read_or_refused(name):
    module = import_module(f"fuzz.targets.{name}")
    assert all(find_spec(each) for each in module.MODULES)
    attack = module.Target()
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


def test_every_format_with_a_budget_is_fuzzed(monkeypatch):
    import credibly.untrusted.images  # noqa: F401  (it asks for its budget when it is imported)

    reached = set()

    class Noted(dict):
        def __getitem__(self, format):
            reached.add(format)
            return super().__getitem__(format)

    monkeypatch.setattr(budget, "BUDGETS", Noted(budget.BUDGETS))
    for name in TARGETS:
        attack = import_module(f"fuzz.targets.{name}").Target()
        for seed in attack.seeds():
            attack.attempt(seed)
    needs = {"hdf5": "h5py", "tokenizer": "transformers"}
    absent = {format for format, library in needs.items() if find_spec(library) is None}
    assert set(budget.BUDGETS) - reached <= absent


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
    from credibly.retrieve.query import diagram

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
