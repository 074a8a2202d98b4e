"""A query is answered or refused within a bounded number of operations, counted, not timed."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credibly import InputError
from credibly.retrieve import parse, probability
from credibly.retrieve import query as queries

NAMES = [f"l{place:03d}" for place in range(200)]


def operations(text: str) -> int:
    """Operations that building the diagram took, whether it ended well or not."""
    query = parse(text)
    builder = queries._Builder(tuple(sorted(query.labels)))
    with suppress(InputError):
        builder.build(query.expression)
    return builder.operations


def crossed(pairs: int) -> str:
    """Alternatives whose diagram doubles with each: a0 & b0 | a1 & b1 | …, all a before all b."""
    return " | ".join(f"a{n} b{n}" for n in range(pairs))


def formulas() -> st.SearchStrategy[str]:
    names = st.sampled_from([f"{letter}{n}" for letter in "abc" for n in range(12)])
    joined = lambda parts: st.tuples(  # noqa: E731 - a one-line grammar
        st.lists(parts, min_size=2, max_size=8), st.sampled_from([" & ", " | ", " & !", " | !"])
    ).map(lambda each: f"({each[1].join(each[0])})")
    return st.recursive(names, joined, max_leaves=400).filter(lambda text: len(text) <= 2000)


@settings(max_examples=60, deadline=None)
@given(formulas())
def test_any_query_takes_a_bounded_number_of_operations(text):
    assert operations(text) <= queries.MOST_OPERATIONS + 1
    with suppress(InputError):
        assert len(queries.diagram(parse(text)).nodes) <= queries._MOST_NODES


@pytest.mark.parametrize("pairs", [8, 16, 24, 100])
def test_crossed_conjunctions_are_bounded(pairs):
    assert operations(crossed(pairs)) <= queries.MOST_OPERATIONS + 1
    both = " ".join(f"({crossed(pairs)} | x{n})" for n in range(4))
    assert operations(both) <= queries.MOST_OPERATIONS + 1
    if pairs >= 24:
        with pytest.raises(InputError, match=r"must take at most .* operations"):
            queries.diagram(parse(crossed(pairs)))


@pytest.mark.parametrize("sign", [" ", " | ", " !", " | !"])
@pytest.mark.parametrize("count", [100, 200])
def test_joining_labels_takes_a_few_operations_per_label(sign, count):
    names = NAMES[:count]
    for order in (names, names[::-1], [*names[1::2], *names[::2]]):
        text = sign.join(order)
        assert operations(text) <= 5 * count
        assert len(queries.diagram(parse(text)).nodes) == count
    chances = np.full((1, count), 0.999)
    assert probability(" ".join(names), chances, names) == pytest.approx(
        np.float32(0.999).astype(float) ** count
    )


def test_more_labels_than_documented_are_refused():
    with pytest.raises(InputError, match="a query may name 200 labels at most; got 201"):
        queries.diagram(parse(" ".join([*NAMES, "more"])))
