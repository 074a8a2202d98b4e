"""Every tutorial is run from its first line to its last: `python` and `bash` blocks, in order.

Blocks that are not run are fenced as something else (`console`, `nginx`, `dockerfile`), and the
page says why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(path.stem for path in TUTORIALS.glob("*.md") if path.stem != "index")
NOT_RUN = {"scale"}
"""Need several machines or an environment of their own, as the page says."""

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("default")
def test_the_tutorial_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (TUTORIALS / f"{name}.md").read_text()
    blocks = BLOCK.findall(text)
    assert bool(blocks) == (name not in NOT_RUN)
    names: dict[str, Any] = {"__name__": "tutorial"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, code in blocks:
        if language == "python":
            exec(compile(code, f"{name}.md", "exec"), names)
            continue
        done = subprocess.run(
            ["bash", "-ec", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    if name == "mislabelled":
        assert sum(names["right"]) >= 5, "the page says that most of them are found"
