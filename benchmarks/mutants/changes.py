"""The small changes that can be made to a source file, as replacements of text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
NAMES = {
    "min": "max",
    "max": "min",
    "argmin": "argmax",
    "argmax": "argmin",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "sum": "mean",
    "floor": "ceil",
    "ceil": "floor",
}


@dataclass(frozen=True, order=True)
class Change:
    """One replacement.

    Attributes:
        path: of the file, from the root of the repository.
        line: number of the line that changes.
        function: number of the first line of the function around it; 0 outside of any.
        start, end: bytes that are replaced.
        text: what replaces them.
        old, new: the line before and after, without indentation.
    """

    path: str
    line: int
    function: int
    start: int
    end: int
    text: str
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        """Return the file with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    @property
    def key(self) -> str:
        """What tells it from other changes, wherever its line moves."""
        return f"{self.path}: {self.old} -> {self.new}"


def changes(path: str, source: bytes) -> list[Change]:
    """Return every change that this module knows for a file."""
    return sorted(set(_Finder(path, source).found()))


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def found(self) -> Iterator[Change]:
        yield from self._walk(ast.parse(self.source), 0)

    def _walk(self, node: ast.AST, function: int) -> Iterator[Change]:
        if isinstance(node, ast.FunctionDef):
            if node.name in ("__repr__", "_repr_html_") or _is_stub(node):
                return
            function = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or _is_typing(node):
            return  # words, and what only a type checker reads
        yield from self._of(node, function)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child, function)

    def _of(self, node: ast.AST, function: int) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from self._between(left, right, COMPARISONS[type(operator)], function)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                if not any(
                    isinstance(each, ast.JoinedStr) or _is_text(each) for each in (left, right)
                ):
                    yield from self._between(left, right, ARITHMETIC[type(operator)][1], function)
            case ast.AugAssign(target=left, op=operator, value=right) if (
                type(operator) in ARITHMETIC
            ):
                yield from self._between(left, right, ARITHMETIC[type(operator)][1] + "=", function)
            case ast.BoolOp(values=[left, right, *_], op=operator):
                word = "or" if isinstance(operator, ast.And) else "and"
                yield from self._between(left, right, word, function)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield from self._replace(node, self._text(operand), function)
            case ast.Constant(value=bool(value)):
                yield from self._replace(node, str(not value), function)
            case ast.Constant(value=int(value)):
                yield from self._replace(node, str(value + 1), function)
            case ast.Constant(value=float(value)):
                yield from self._replace(node, repr(2 * value + 0.25), function)
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield from self._replace(value, "None", function)
            case ast.Slice(lower=ast.expr() as lower, upper=None):
                yield from self._replace(lower, f"{self._text(lower)} + 1", function)
            case ast.Slice(upper=ast.expr() as upper):
                yield from self._replace(upper, f"{self._text(upper)} - 1", function)
            case ast.Call(func=ast.Attribute(value=value, attr=name) as called) if name in NAMES:
                yield from self._replace(called, f"{self._text(value)}.{NAMES[name]}", function)
            case ast.Call(func=ast.Name(id=name) as called) if name in NAMES and name != "sum":
                yield from self._replace(called, NAMES[name], function)

    def _between(
        self, left: ast.expr, right: ast.expr, operator: str, function: int
    ) -> Iterator[Change]:
        start, end = self._span(left)[1], self._span(right)[0]
        between = self.source[start:end].decode()
        words = between.strip("() \n\\")
        if words and "#" not in words and "\n" not in words:
            text = between.replace(words, operator, 1)
            yield from self._change(left, start, end, text, function)

    def _replace(self, node: ast.expr, text: str, function: int) -> Iterator[Change]:
        start, end = self._span(node)
        if "\n" not in text and self.source[start:end].decode() != text:
            yield from self._change(node, start, end, text, function)

    def _change(
        self, node: ast.expr, start: int, end: int, text: str, function: int
    ) -> Iterator[Change]:
        # A change over several lines is shown by its first line, which must differ.
        changed = self.source[:start] + text.encode() + self.source[end:]
        number = self.source[:start].count(b"\n") + 1
        if self.source[start:end][:1] == b"\n":
            number += 1
        old, new = self.lines[number - 1], changed.splitlines()[number - 1]
        lines = old.decode().strip(), new.decode().strip()
        try:
            ast.parse(changed)
        except SyntaxError:
            return
        if lines[0] != lines[1]:
            yield Change(self.path, number, function, start, end, text, *lines)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()


def _is_stub(node: ast.FunctionDef) -> bool:
    return any("abstractmethod" in ast.dump(each) for each in node.decorator_list)


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
