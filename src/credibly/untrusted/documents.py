"""Read untrusted JSON, TOML and XML files and lists of names."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Container
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from credibly.checks import InputError, fits_memory
from credibly.types import JsonObject
from credibly.untrusted.budget import BUDGETS, read_text

BYTES_PER_VALUE = 64
"""Memory of a small Python object: ``[]`` takes two letters of a file."""


_PARTS = r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+)"
_TOML_STRING = re.compile(
    r"\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|#[^\n]*+", re.DOTALL
)


def read_json_object(path: Path, advice: str = "") -> JsonObject:
    """Return the JSON object in a file; ``advice`` ends the error if it contains anything else.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if the file does not contain a JSON object.
    """
    document = parse_json(read_text(path), f"{path} must be JSON", advice)
    if not isinstance(document, dict):
        found = str(document)[:80]
        raise InputError(f"{path} must be a JSON object; got {found}. {advice}".rstrip())
    return document


def parse_json(text: str, must: str, advice: str = "", keep: Container[str] | None = None) -> Any:
    """Return the value of a JSON text; with ``keep``, objects keep only these keys, to save memory.

    Args:
        text: the JSON text.
        must: the beginning of errors, such as ``rows.json must be JSON``.
        advice: the end of errors.
        keep: the keys to keep.
    """
    # With `keep`, each object is reduced as soon as it is read, so fewer values are in memory.
    values = sum(map(text.count, "[{,:")) // (1 if keep is None else 4)
    fits_memory(must.partition(" must ")[0], values, itemsize=BYTES_PER_VALUE)
    hook = None if keep is None else lambda item: {k: v for k, v in item.items() if k in keep}
    try:
        return json.loads(text, object_hook=hook)
    except RecursionError:
        raise InputError(f"{must}; it is nested too deeply. {advice}".rstrip()) from None
    except ValueError as error:
        raise InputError(f"{must}; {error}. {advice}".rstrip()) from None


def read_toml(path: Path, format: str = "toml") -> JsonObject:
    """Return the tables of a TOML file.

    Raises:
        FileNotFoundError: if there is no such file.
        InputError: if it is not TOML.
    """
    text, depth = read_text(path, format), BUDGETS[format].depth or 0
    # The parser takes quadratic time in the parts of a key: a key of 1 MB takes an hour.
    if re.search(_PARTS + f"{{{depth}}}", _TOML_STRING.sub("s", text), re.ASCII):
        raise InputError(f"{path} must have keys of at most {depth} parts (a.b.c).")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also very large numbers or deep nesting
        raise InputError(f"{path} must be a TOML file; {error}.") from error


# Files of a data set layout: a missing file is an error in the data -------------------------------


def read_layout_text(path: Path, format: str = "text") -> str:
    """Return the content of a UTF-8 text file; an error about a missing or binary file names it."""
    try:
        return read_text(path, format)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is missing. This layout needs it.") from None
    except ValueError as error:  # a NUL in a file name that another file contains
        raise InputError(f"{str(path)!r} must be the name of a file; {error}.") from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    return [line.strip() for line in read_layout_text(path).splitlines() if line.strip()]


def read_json(path: Path, keep: Container[str] | None = None) -> Any:
    """Return the value in a JSON file; with ``keep``, only these keys, to save memory."""
    return parse_json(read_layout_text(path, "data json"), f"{path} must be JSON", keep=keep)


def read_xml(path: Path) -> Element:
    """Return the root of an XML file; document types, and therefore all entities, are refused."""
    text, max_depth = read_layout_text(path, "xml"), BUDGETS["xml"].depth or 0
    builder, parser, depth = TreeBuilder(), expat.ParserCreate("utf-8", "}"), 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > max_depth:
            raise InputError(f"{path} must nest at most {max_depth} deep.")
        builder.start(name.rpartition("}")[2], attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name.rpartition("}")[2])

    def refuse(*_: object) -> None:
        raise InputError(f"{path} must not declare a document type (<!DOCTYPE …>); remove it.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        # The text is decoded above. This encoding overrides the one that the file declares.
        parser.Parse(text.encode(), True)
        return builder.close()
    except expat.ExpatError as error:
        raise InputError(f"{path} must be XML; {error}.") from None


def field(record: object, key: str, where: str) -> Any:
    """Return ``record[key]`` of a JSON object; an error about a missing key names ``where``."""
    if not isinstance(record, dict) or key not in record:
        raise InputError(f"{where} must be an object with {key!r}; got {str(record)[:80]}.")
    return record[key]
