"""Work in other processes: results, errors, processes that die."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from credibly import InputError
from credibly.child_processes import in_processes


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    if number == 1:
        raise InputError("`number` must not be 1.")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("count", [1, 2, 9])
def test_every_job_is_done_once(count):
    found = sorted(in_processes(square, range(5), count))
    assert found == [(number, number**2) for number in range(5)]


def test_nothing_to_do():
    assert list(in_processes(square, [], 2)) == []


ERRORS = {
    "its own": (fail, InputError, "must not be 1"),
    "killed": (die, ChildProcessError, "was killed"),
}


@pytest.mark.parametrize(("work", "kind", "words"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_of_a_job_is_raised_and_ends_the_others(work, kind, words):
    with pytest.raises(kind, match=words), closing(in_processes(work, [1, 1, 1], 2)) as found:
        list(found)
