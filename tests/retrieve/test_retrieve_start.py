"""What reading an index loads: importing pandas takes half a second of a first answer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from credibly import Predictions

CODE = """
import sys
from credibly.retrieve.index import Index
index = Index.read(sys.argv[1])
assert index.search("a -b").hits[0].id == "r1"
print(sorted(name for name in ("pandas", "torch") if name in sys.modules))
"""


@pytest.mark.parametrize("ids", [["r0", "r1", "r2"], ["r2", "r1", "r0"]], ids=["sorted", "not"])
def test_a_file_with_unknown_truth_is_searched_without_pandas(tmp_path, ids):
    one = Predictions.from_arrays(
        probabilities=np.array([[0.2, 0.1], [0.9, 0.1], [0.3, 0.8]], np.float32),
        targets=np.array([[0, -1], [1, 0], [-1, 1]], np.int8),
        labels=["a", "b"],
        ids=ids,
        coding="unknown",
    )
    one.write(tmp_path / "p.parquet")
    command = [sys.executable, "-c", CODE, str(tmp_path / "p.parquet")]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.stdout.strip(), said.returncode) == ("[]", 0), said.stderr
