"""A worker reads what others made within limits of time and memory, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from credibly.child_processes import Worker, end_workers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")

WORKERS = {
    "echo": "return job[::-1]",
    "busy": "while job == b'x': pass",
    "works": "end = time.process_time() + 0.6; all(iter(lambda: time.process_time() < end, False))",
    "asleep": "time.sleep(1000)",
    "large": "bytearray(2 * 2**30 if job == b'x' else 1)",
    "writes": "open('out', 'wb', buffering=0).write(b'x' * 2000); open('out', 'ab', 0).write(job)",
    "fails": "assert job != b'x'",
}


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Write a module that limits itself and then does one thing; return its name."""
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)

    def write(action: str) -> str:
        text = f"""
        import time
        from credibly.child_processes import Limits, serve_jobs

        def answer(job):
            {WORKERS[action]}
            return b"done"

        serve_jobs(answer, Limits(memory=2**30, seconds=1, file_bytes=1000))
        """
        (tmp_path / "modules" / "worker.py").write_text(textwrap.dedent(text), encoding="utf-8")
        return "worker"

    return write


def test_a_worker_answers_one_job_after_another(worker):
    with Worker(worker("echo"), 60) as found:
        for job in (b"abc" * 100_000, b"", b"1"):
            assert found.ask(job) == job[::-1]


@pytest.mark.parametrize("action", ["busy", "large", "fails"])
def test_a_job_that_takes_too_much_gets_no_answer_and_the_next_does(worker, action):
    with Worker(worker(action), 60) as found:
        assert found.ask(b"") == b"done"
        assert found.ask(b"x") is None
        assert found.ask(b"") == b"done"


def test_a_worker_writes_no_large_file(worker, tmp_path):
    with Worker(worker("writes"), 60) as found:
        assert found.ask(b"x") is None
    assert (tmp_path / "out").stat().st_size == 1000


def test_seconds_count_anew_for_each_job(worker):
    """Each job computes for 0.9 of the one second that a job may take."""
    with Worker(worker("works"), 60) as found:
        assert [found.ask(b"") for _ in range(3)] == [b"done"] * 3


def test_a_worker_that_does_nothing_is_ended(worker):
    with Worker(worker("asleep"), 0.5) as found:
        assert found.ask(b"") is None


def test_workers_can_be_ended_while_somebody_waits(worker):
    answers = []
    found = Worker(worker("asleep"), 600)
    thread = threading.Thread(target=lambda: answers.append(found.ask(b"")))
    thread.start()
    while thread.is_alive():
        end_workers()
        thread.join(0.05)
    assert answers == [None]


def test_modules_of_the_current_folder_are_not_run(worker, tmp_path):
    (tmp_path / "json.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    (tmp_path / "signal.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    with Worker(worker("echo"), 60) as found:
        assert found.ask(b"ab") == b"ba"
    assert not (tmp_path / "ran").exists()


def test_a_worker_ends_with_a_killed_parent(worker, tmp_path):
    module = worker("asleep")
    program = f"""
    import sys
    sys.path.insert(0, {str(tmp_path / "modules")!r})
    from credibly.child_processes import Worker
    Worker({module!r}, 600).ask(b"")
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    found: list[str] = []
    while not found:
        with open(children, encoding="ascii") as file:
            found = file.read().split()
        time.sleep(0.05)
    time.sleep(1.0)  # the worker limits itself in this time
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while _runs(int(found[0])):
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
