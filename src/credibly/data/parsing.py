"""Text files: JSON, XML and lists, read without trusting them."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from credibly.checks import InputError, input_file

MAX_XML_BYTES = 1 << 26
MAX_XML_DEPTH = 100


def read_text(path: Path) -> str:
    """Return a text file as UTF-8; raise an error that names it if it is not there or not text."""
    try:
        input_file(path)
        return path.read_text(encoding="utf-8-sig")
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is missing; it belongs to this layout.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be UTF-8 text; {error}.") from None
    except ValueError as error:  # a NUL in a name that another file gave
        raise InputError(f"{str(path)!r} must be the name of a file; {error}.") from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_json(path: Path, keep: Container[str] | None = None) -> Any:
    """Return what a JSON file holds; with ``keep``, only these keys, to save memory."""
    text = read_text(path)
    hook = None if keep is None else lambda item: {k: v for k, v in item.items() if k in keep}
    try:
        return json.loads(text, object_hook=hook)
    except ValueError as error:
        raise InputError(f"{path} must be JSON; {error}.") from None
    except RecursionError:
        raise InputError(f"{path} must be JSON of sane depth; it nests too deep to read.") from None


def read_xml(path: Path) -> Element:
    """Return the root of an XML file. Document types, and so entities of any kind, are refused."""
    if path.exists() and path.stat().st_size > MAX_XML_BYTES:
        raise InputError(f"{path} must be at most {MAX_XML_BYTES >> 20} MB of XML.")
    text = read_text(path)
    builder, parser, depth = TreeBuilder(), expat.ParserCreate("utf-8", "}"), 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_XML_DEPTH:
            raise InputError(f"{path} must nest at most {MAX_XML_DEPTH} deep.")
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
        # Decoded above: the encoding given to the parser overrides the one the file declares.
        parser.Parse(text.encode(), True)
        return builder.close()
    except expat.ExpatError as error:
        raise InputError(f"{path} must be XML; {error}.") from None


def field(record: object, key: str, where: str) -> Any:
    """Return ``record[key]`` of a JSON object; raise an error that says where it is missing."""
    if not isinstance(record, dict) or key not in record:
        raise InputError(f"{where} must be an object with {key!r}; got {str(record)[:80]}.")
    return record[key]
