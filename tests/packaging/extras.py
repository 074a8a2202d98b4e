"""What works with which extra installed: every command runs, or names the extra that it needs.

``python extras.py train`` is run in an environment with ``credibly[train]`` (``make test-extras``);
``python extras.py --without train`` hides the libraries that only that extra brings.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("train", "plot", "search", "serve")
SHARED = {"PIL", "jinja2", "markupsafe"}
"""What torch or matplotlib bring as well."""
MODULES = {"pillow": "PIL", "python-multipart": "python_multipart"}


def libraries(extra: str) -> set[str]:
    """Return the modules of one extra, as pyproject.toml names their packages."""
    lines = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = [line.split(">=")[0] for line in lines[extra] if "[" not in line]
    return {MODULES.get(name, name) for name in names}


def oldest() -> list[str]:
    """Return the lowest version of every library that a user installs, torch apart."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(line for extra in (*EXTRAS, "export") for line in extras[extra]),
    ]
    return sorted(
        line.replace(">=", "==") for line in lines if line[:5] != "torch" and "[" not in line
    )


def works() -> dict[str, tuple[str | None, Callable[[], int]]]:
    """Return what a user does, with the extra that it needs; each gives an exit code."""
    import numpy as np

    import credibly as cr
    from credibly.cli import main

    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 3)).astype(np.float32)
    targets = (scores + rng.normal(size=scores.shape) > 0).astype(int)
    loss = cr.losses.SPA()
    probabilities = 1 / (1 + np.exp(-scores))
    predictions = cr.Predictions.from_arrays(
        probabilities=probabilities, targets=targets, labels=["a", "b", "c"]
    )
    predictions.write("p.parquet")
    np.savez("scores.npz", scores=scores, targets=targets)
    np.savez("data.npz", features=scores, targets=targets, labels=np.array(["a", "b", "c"]))

    def called(function: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            try:
                function()
            except cr.InputError as error:
                print(error, file=sys.stderr)
                return 2
            return 0

        return run

    def command(*arguments: str) -> Callable[[], int]:
        return lambda: main(arguments)

    return {
        "losses": (None, called(lambda: loss.probabilities)),
        "calibrators": (None, called(lambda: cr.calibrate.Isotonic().fit(scores, targets))),
        "metrics": (None, called(lambda: cr.metrics.average_precision(probabilities, targets))),
        "evaluate": (None, command("evaluate", "p.parquet")),
        "sets": (None, command("sets", "p.parquet", "--threshold", "0.5", "--out", "sets.parquet")),
        "check": (None, command("check", "p.parquet")),
        "train": ("train", command("train", "data.npz", "--model", "linear", "--out", "run")),
        "estimator": (
            "train",
            called(lambda: cr.CredibleClassifier(model="linear").fit(scores, targets)),
        ),
        "plot": ("plot", called(lambda: cr.plot.link("asl"))),
        "search": ("search", command("search", "p.parquet", "+a -b")),
        "report": (None, command("report", "p.parquet", "--out", "r.html")),
        "app": ("serve train", called(lambda: cr.app.server.create_app(["p.parquet"]))),
    }


def check(missing: set[str]) -> None:
    """Run everything; fail where the answer is not what the installed extras promise."""
    for name, (extra, run) in works().items():
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = run()
        lines = [line for line in said.getvalue().splitlines() if "needs" in line]
        needed = missing & set((extra or "").split())
        expected = 2 if needed else 0
        assert code == expected, f"{name}: exit code {code}, not {expected}: {said.getvalue()}"
        if code:
            assert len(lines) == 1, f"{name}: {said.getvalue()}"
            assert f"credibly[{min(needed)}]" in lines[0], lines
        print(f"{name}: {'needs ' + str(extra) if code else 'runs'}")


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "--oldest":
        print("\n".join(oldest()))
        sys.exit()
    if given[0] == "--without":
        others = set().union(*(libraries(extra) for extra in EXTRAS if extra != given[1]))
        hidden = dict.fromkeys(
            libraries(given[1]) - others - SHARED
        )  # imported as if not installed
        sys.modules.update(hidden)  # pyright: ignore[reportArgumentType, reportCallIssue]
        without = {given[1]}
    else:
        given += ["train"] if "serve" in given else []  # which serve brings
        without = set(EXTRAS) - set(EXTRAS if "all" in given else given)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        check(without)
