"""Run every example in a folder of its own and count the lines that mention credibly.

python examples/run_all.py            all of them, with times
python examples/run_all.py --count    only the table of docs/guide/integrations.md
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = {
    "plain_torch.py": "plain torch, mixed precision and accumulation",
    "with_trainer.py": "Hugging Face Trainer",
    "with_lightning.py": "Lightning",
    "with_timm.py": "timm",
    "with_sklearn.py": "scikit-learn",
    "with_xgboost.py": "XGBoost",
    "kaggle_csv.py": "Kaggle CSV, command line",
    "notebook.ipynb": "notebook",
}

# A torchvision that was not built for this torch lacks its own operators; declaring their
# signatures is enough to import it. It lies in a folder of its own: other libraries try to use it.
TORCHVISION = """
import runpy, sys, torch
sys.path.append(sys.argv[1])
operators = torch.library.Library("torchvision", "DEF")
operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
runpy.run_path(sys.argv[2], run_name="__main__")
"""
NOTEBOOK = """
import nbclient, nbformat, sys
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300).execute()
outputs = [out for cell in notebook.cells for out in cell.get("outputs", []) if "data" in out]
shown = [set(out.data) for out in outputs]
assert len(shown) == 6 and all("text/html" in kinds for kinds in shown), shown
print(len(shown), "cells show HTML")
"""


def lines_of(name: str) -> tuple[int, int]:
    """Return how many lines of code an example has, and how many of them mention credibly."""
    text = (HERE / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    body = text.partition('"""')[2].partition('"""')[2] if text.startswith('"""') else text
    lines = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    return len(lines), sum("cr." in line or "credibly" in line for line in lines)


def table() -> str:
    """Return the table of the documentation."""
    rows = ["| example | file | lines | of them credibly |", "|---|---|---:|---:|"]
    for name, title in EXAMPLES.items():
        total, ours = lines_of(name)
        rows.append(f"| {title} | `examples/{name}` | {total} | {ours} |")
    return "\n".join(rows)


def run(name: str) -> None:
    """Run one example; raise if it fails."""
    path = str(HERE / name)
    vision = str(Path(sys.prefix) / "vision")
    command = [sys.executable, "-W", "ignore"]
    if name == "with_timm.py":
        command += ["-c", TORCHVISION, vision, path]
    elif name.endswith(".ipynb"):
        command += ["-c", NOTEBOOK, path]
    else:
        command += [path]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, cwd=folder, env={**os.environ, "PATH": paths})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        print(table())
        return
    for name in options.names:
        print(f"=== {name}", flush=True)
        start = time.perf_counter()
        run(name)
        print(f"=== {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
