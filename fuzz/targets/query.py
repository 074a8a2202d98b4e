"""Queries: read, written back, and their exact probability."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fuzz.targets import Attack

MODULES = ("credibly.retrieve.query",)


class Target(Attack):
    """``retrieve.parse``; canonical text reads back the same, probabilities stay in [0, 1]."""

    def seeds(self) -> Iterable[bytes]:
        yield b'+fork +apple -"dining table"'
        yield b"(dog | cat) & !beach"
        yield b'a|b&!(c|"d\\"e")-f'
        yield b"((a b)|(c d)) !(a|d) - -x"
        yield b"(a|b)(c|d)(e|f)(g|h)!(a&(c|!e))"

    def read(self, data: bytes) -> None:
        from credibly.retrieve import parse
        from credibly.retrieve.query import diagram, evaluate

        query = parse(data.decode("utf-8", errors="replace"))
        assert parse(str(query)) == query, "canonical text must read back the same"
        found = diagram(query)
        present = [np.array([0.0, 0.25 + 0.5 / (1 + i), 1.0]) for i in range(len(found.labels))]
        value = np.asarray(evaluate(found, present))
        assert ((value >= -1e-12) & (value <= 1 + 1e-12)).all(), "a probability lies in [0, 1]"
