"""How large the package is, how its code is shaped, and how long the paths through it are.

``python -m benchmarks.structure`` prints the table of docs/reference/architecture.md;
``--write`` puts it there.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import threading
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).parents[1] / "src" / "credibly"
TESTS = Path(__file__).parents[1] / "tests"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "architecture.md"
BEGIN, END = "<!-- structure: begin -->", "<!-- structure: end -->"
MAX_ARGUMENTS = 6
LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
PUBLIC_MODULES = {"integrations", "papers", "plot", "runtime"}
"""Packages and modules whose parts users import by name."""


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield every module of the package: its path within it, its text and its tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(SOURCE), text, ast.parse(text)


def code(text: str, tree: ast.Module) -> tuple[int, int]:
    """Return the lines and tokens of code: no blank line, comment or docstring."""
    documentation: set[int] = set()
    for node in ast.walk(tree):
        text_alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text_alone and isinstance(node.value.value, str):
            documentation |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT_TOKENS and token.start[0] not in documentation:
            tokens += 1
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines), tokens


def exported(tree: ast.Module) -> list[str]:
    """Return the names of a module's ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [each.value for each in getattr(node.value, "elts", []) if each.value]
    return []


def _many_arguments(tree: ast.Module) -> int:
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count += sum(each.arg not in ("self", "cls") for each in given) > MAX_ARGUMENTS
    return count


def _type_names(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the types that a module defines; each command of the command line has its Options."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name != "Options":
            yield node.name.lstrip("_")


def _imports(path: Path, tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules that a module imports, imports inside functions counted."""
    found: set[str] = set()
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("credibly"):
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                found.add(inner if inner in known else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.startswith("credibly.")}
    return found & known


def knots(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while (last := stack.pop()) != node:
                group.append(last)
            if group:
                circles.append(sorted([*group, node]))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return circles


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("credibly", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def tests_of_modules() -> list[str]:
    """Return the test files that import a name from a module that no ``__init__`` exports."""
    doors = {_module_name(path): set(exported(tree)) for path, _, tree in modules()}
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                public = doors.get(node.module, set())
                names = [node.module for name in node.names if name.name not in public]
            elif isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            deep = [name.split(".") for name in names if name.startswith("credibly.")]
            if any(len(name) > 2 and name[1] not in PUBLIC_MODULES for name in deep):
                found.append(str(path.relative_to(TESTS)))
                break
    return found


def shape() -> dict[str, int]:
    """Return the figures that are counted from the source."""
    figures: dict[str, int] = defaultdict(int)
    types: dict[str, set[Path]] = defaultdict(set)
    parsed = list(modules())
    known = {_module_name(path) for path, *_ in parsed}
    graph = {_module_name(path): _imports(path, tree, known) for path, _, tree in parsed}
    for path, text, tree in parsed:
        lines, tokens = code(text, tree)
        where = " in papers" if path.parts[0] == "papers" else ""
        figures["code lines" + where] += lines
        figures["code tokens" + where] += tokens
        figures["files"] += 1
        figures["exported names"] += len(exported(tree))
        figures["functions with more than six arguments"] += _many_arguments(tree)
        figures["lines that mention Any"] += sum("Any" in line for line in text.splitlines())
        for name in _type_names(path, tree):
            types[name].add(path)
    figures["knots of imports"] = len(knots(graph))
    figures["type names with more than one meaning"] = sum(len(x) > 1 for x in types.values())
    figures["test files that import modules"] = len(tests_of_modules())
    for suffix in (".js", ".html", ".css"):
        texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob(f"*{suffix}"))
        figures[f"lines of {suffix}"] = sum(text.count("\n") for text in texts)
    return dict(figures)


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of the package that a second call of ``call`` enters, in their order."""
    entered: dict[str, None] = {}

    def notice(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            entered[str(path.relative_to(SOURCE))] = None

    call()
    threading.setprofile(notice)
    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(entered)


def paths(folder: Path) -> dict[str, list[str]]:
    """Return the files entered by a training, an evaluation and a page of the app."""
    import credibly as cr
    from credibly.app.server import create_app
    from credibly.cli import main

    data = cr.data.synthetic(300, num_labels=4, seed=0)
    table = folder / "table.npz"
    data_file, predictions = str(table), folder / "predictions.parquet"
    import numpy as np

    features, targets = np.asarray(data.features), np.asarray(data.targets)
    np.savez(table, features=features, targets=targets, labels=np.array(data.labels))
    cr.Predictions.from_arrays(
        probabilities=np.random.default_rng(0).random(targets.shape).astype(np.float32),
        targets=targets,
        labels=list(data.labels),
    ).write(predictions)
    turn = iter(range(9))

    def train() -> None:
        out = str(folder / f"run{next(turn)}")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert main(["train", data_file, "--model", "linear", "--out", out]) == 0

    def evaluate() -> None:
        with redirect_stdout(io.StringIO()):
            assert main(["evaluate", str(predictions), "--json"]) == 0

    from starlette.testclient import TestClient

    client = TestClient(create_app([predictions]), base_url="http://127.0.0.1")

    def errors() -> None:
        assert client.get("/errors").status_code == 200

    return {
        "train --model linear": files_entered(train),
        "evaluate": files_entered(evaluate),
        "/errors": files_entered(errors),
    }


LIMITS = {
    "code lines": 31_500,
    "code tokens": 290_000,
    "files": 270,
    "exported names": 190,
    "knots of imports": 0,
    "functions with more than six arguments": 40,
    "lines that mention Any": 500,
    "type names with more than one meaning": 0,
    "test files that import modules": 10,
    "files entered by train --model linear": 45,
    "files entered by evaluate": 15,
    "files entered by /errors": 10,
}


def table(figures: dict[str, int]) -> str:
    """Return the figures as the table of docs/reference/architecture.md."""
    rows = [
        f"| {name} | {count:,} | {f'{LIMITS[name]:,}' if name in LIMITS else ''} |"
        for name, count in figures.items()
    ]
    return "\n".join(["| measure | now | at most |", "|---|---|---|", *rows])


def measured() -> dict[str, int]:
    """Return all figures."""
    figures = shape()
    with tempfile.TemporaryDirectory() as folder:
        for name, entered in paths(Path(folder)).items():
            figures[f"files entered by {name}"] = len(entered)
    return figures


def run(*arguments: str) -> None:
    """Print the table, or write it into docs/reference/architecture.md."""
    text = table(measured())
    print(text)
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    run(*sys.argv[1:])
