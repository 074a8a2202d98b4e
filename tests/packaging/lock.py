"""Write requirements.lock and sbom.json: what ``credibly[all,metrics]`` installs, with hashes.

``make lock`` runs it. pip resolves, nothing is installed; torch is left out, because which build
fits depends on the machine. The bill of materials is CycloneDX 1.6.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
EXTRAS = "all,metrics"
LEFT_OUT = {"torch", "credibly"}
HEAD = f"""\
# What `credibly[{EXTRAS}]` was tested with: Python 3.11, Linux, x86-64, hashes of the wheels.
# `make lock` writes it. torch is left out, because which build fits depends on the machine (the
# tests run 2.13.0 for the CPU): install it first, then
#     pip install --require-hashes --no-deps -r requirements.lock && pip install --no-deps .
"""


def resolved() -> list[dict[str, Any]]:
    """Return what pip would install into an empty environment, as its report says."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--no-binary", "credibly"]
        command += ["--report", str(report), "-c", "constraints.txt", f".[{EXTRAS}]"]
        subprocess.run(command, cwd=ROOT, check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    kept = [each for each in found if each["metadata"]["name"].lower() not in LEFT_OUT]
    return sorted(kept, key=lambda each: each["metadata"]["name"].lower())


def main() -> None:
    """Write both files."""
    lines, components = [], []
    for each in resolved():
        name, version = each["metadata"]["name"].lower(), each["metadata"]["version"]
        digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
        components.append(
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = {"type": "library", "name": "credibly", "version": project["version"]}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": components,
    }
    (ROOT / "requirements.lock").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    (ROOT / "sbom.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    print(f"{len(lines)} packages")


if __name__ == "__main__":
    main()
