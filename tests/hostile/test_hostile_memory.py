"""A search under any limit of memory answers, or says that there is not enough of it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import credibly as cr

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ulimit of Linux")


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "p.parquet"
    rng = np.random.default_rng(0)
    cr.Predictions.from_arrays(
        probabilities=rng.random((20_000, 80), dtype=np.float32),
        targets=(rng.random((20_000, 80)) < 0.1).astype(np.int8),
        labels=[f"l{number}" for number in range(80)],
    ).write(path)
    return path


def searched(path, megabytes):
    command = f"ulimit -v {megabytes * 1024}; exec {sys.executable} -m credibly search "
    command += f"'{path}' '+l1 +l2 -l3' --json"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("megabytes", [300, 500, 600, 700, 800, 1000, 1200, 1400, 1600])
def test_a_search_under_a_limit_of_memory_ends_with_a_sentence(predictions, megabytes):
    done = searched(predictions, megabytes)
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 0:
        assert json.loads(done.stdout)["rows"]
    else:
        assert "memory" in done.stderr.splitlines()[-1] or megabytes < 400
        assert "Traceback" not in done.stderr


def test_a_limit_that_is_enough_changes_nothing(predictions):
    free = subprocess.run(
        [sys.executable, "-m", "credibly", "search", predictions, "+l1 +l2 -l3", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    done = searched(predictions, 2**14)
    assert (done.returncode, done.stdout) == (0, free.stdout)
    wrong = searched(predictions.with_name("missing.parquet"), 2**14)
    assert wrong.returncode == 2
    assert "missing.parquet" in wrong.stderr
