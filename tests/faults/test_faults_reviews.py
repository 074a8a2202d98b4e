"""Decisions of reviewers: what was acknowledged survives kills and a full disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from test_faults_disk import disk as disk  # a small disk of one's own
from test_faults_disk import fill

from credibly.review import Review, ReviewLog

KILLS = 50


def write_until_killed(path, name, pipe):
    """Append decisions one by one, and say through a pipe which are saved."""
    log = ReviewLog(path)
    for number in range(100_000):
        log.append([Review(f"{name}-{number}", "a label, é", number % 2)], who=name)
        os.write(pipe, f"{name}-{number}\n".encode())


def killed_writer(path, name, draw):
    """Return the decisions that a writer said it had saved before it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(path, name, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        first = said.readline()  # it has begun
        time.sleep(draw.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        rest = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    return [line.decode() for line in (first + rest).split(b"\n") if line]


def test_decisions_survive_fifty_kills(tmp_path):
    path, draw, saved = tmp_path / "corrections.jsonl", random.Random(0), []
    for kill in range(KILLS):
        saved += killed_writer(path, f"kill{kill}", draw)
        if draw.random() < 0.3:  # as a kill in the middle of a write leaves it
            with path.open("ab") as file:
                file.write(b'{"id": "torn"'[: draw.randint(1, 13)])
    assert len(saved) >= KILLS
    log = ReviewLog(path)
    kept = [each.review.id for each in log.entries()]
    assert set(saved) <= set(kept)
    assert len(kept) == len(set(kept)) <= len(saved) + KILLS  # at most one unacknowledged per kill


def reviewer(path, name, count):
    log = ReviewLog(path)
    for number in range(count):
        log.append([Review(f"{name}-{number}", "cat", 1)], who=name)


def test_two_reviewers_at_once_lose_nothing(tmp_path):
    path, count = tmp_path / "corrections.jsonl", 150
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=reviewer, args=(path, name, count)) for name in ("A", "B")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    log = ReviewLog(path)
    kept = [each.review.id for each in log.entries()]
    assert log.skipped == 0
    for name in ("A", "B"):
        assert [id for id in kept if id[0] == name] == [f"{name}-{n}" for n in range(count)]
    assert len(path.read_bytes().splitlines()) == 2 * count


def append_until_full(log):
    """Return how many decisions were saved before the disk was full."""
    for number in range(100_000):
        try:
            log.append([Review(f"{number}", "cat", 1), Review(f"{number}", "dog", 0)])
        except OSError:
            return number
    raise AssertionError("the disk never filled")


def check_full(path, room):
    log = ReviewLog(path)
    log.append([Review("first", "cat", 1)])
    saved = append_until_full(log)
    assert saved > 0
    kept = [each.review.id for each in log.entries()]
    assert kept == ["first", *(str(number) for number in range(saved) for _ in range(2))]
    assert path.read_bytes().endswith(b"\n")  # what did not fit was taken back
    room()
    log.append([Review("last", "cat", 1)])
    assert ReviewLog(path).entries()[-1].review.id == "last"


def test_a_full_disk_loses_no_decision_and_is_said(disk):
    ballast = fill(disk, 16384)
    check_full(disk / "corrections.jsonl", ballast.unlink)
    (disk / "corrections.jsonl").unlink()


def test_a_quota_loses_no_decision(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3001, before[1]))
        check_full(
            tmp_path / "corrections.jsonl",
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.fixture
def serving(tmp_path):
    """Start a server with a log; return how to start it and where the log is."""
    from credibly import Predictions

    Predictions.from_arrays(
        probabilities=[[0.9]] * 200,
        targets=[[0]] * 200,
        labels=["cat"],
        ids=[f"{row:03d}" for row in range(200)],
    ).write(tmp_path / "p.parquet")
    started = []

    def start():
        command = [sys.executable, "-m", "credibly", "serve", str(tmp_path / "p.parquet")]
        command += ["--annotate", str(tmp_path / "log.jsonl"), "--port", "0", "--quiet"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(server)
        return server, server.stdout.readline().split()[0]

    yield start, tmp_path / "log.jsonl"
    for server in started:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_killed_server_has_kept_what_it_answered(serving):
    import httpx

    start, path = serving
    answered = []
    for kill in range(2):
        server, address = start()
        with httpx.Client(base_url=address, timeout=60) as client:
            for row in range(100 * kill, 100 * kill + 12):
                body = {
                    "who": "Ana",
                    "reviews": [{"id": f"{row:03d}", "label": "cat", "value": "present"}],
                }
                answer = client.post("/api/reviews", json=body)
                assert answer.status_code == 200, answer.text
                answered.append(f"{row:03d}")
        server.send_signal(signal.SIGKILL)
        server.wait()
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == answered
