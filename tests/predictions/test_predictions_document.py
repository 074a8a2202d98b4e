"""The code in docs/reference/files.md runs."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "files.md"


def test_the_documented_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), DOCUMENT.name, "exec"), {})
    assert capsys.readouterr().out == "3 ['dog', 'dining table'] True spa\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "batches.parquet",
        "predictions.parquet",
        "top.parquet",
    ]
