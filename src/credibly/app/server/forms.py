"""What a form of the pages sends: fields and files."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from credibly.app.server.request_guard import BODY_LIMIT
from credibly.checks import InputError

MOST_PARTS = 30


@dataclass(frozen=True)
class UploadedFile:
    """A file as the browser sent it; ``name`` is what its owner called it, without folders."""

    name: str
    content: bytes

    @property
    def ending(self) -> str:
        """Return the ending of the name in small letters, with its dot; empty without one."""
        _, dot, ending = self.name.rpartition(".")
        return f".{ending.lower()}" if dot else ""


@dataclass(frozen=True)
class Form:
    """Fields and files by name; those that were left empty are not there."""

    fields: dict[str, str]
    files: dict[str, UploadedFile]


def read_form(content_type: str, body: bytes) -> Form:
    """Return the fields and files of a body, ``multipart/form-data`` or URL-encoded.

    Raises:
        InputError: for a body that is neither, is not complete or has too many parts.
    """
    kind, options = parse_options_header(content_type)
    if kind == b"application/x-www-form-urlencoded":
        return _read_encoded(body)
    fields: dict[str, str] = {}
    files: dict[str, UploadedFile] = {}

    parts = itertools.count(1)

    def check() -> None:
        if next(parts) > MOST_PARTS:
            raise InputError(f"a form must have at most {MOST_PARTS} fields.")

    def on_field(field: Field) -> None:
        check()
        if field.value:
            fields[_text(field.field_name)] = _text(field.value)

    def on_file(file: File) -> None:
        check()
        name = _text(file.file_name).replace("\\", "/").rpartition("/")[2][:200]
        file.file_object.seek(0)
        content = file.file_object.read()
        file.close()
        if name or content:
            files[_text(file.field_name)] = UploadedFile(name or "file", content)

    try:
        parser = FormParser(
            kind.decode("latin-1"),
            on_field,
            on_file,
            boundary=options.get(b"boundary"),
            config={"MAX_MEMORY_FILE_SIZE": BODY_LIMIT},
        )
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "the body must be a complete form, multipart/form-data or URL-encoded; "
            f"{str(error)[:200] or type(error).__name__}."
        ) from error
    return Form(fields, files)


def _read_encoded(body: bytes) -> Form:
    try:
        pairs = parse_qsl(body.decode("utf-8"), max_num_fields=MOST_PARTS)
    except ValueError as error:
        raise InputError(
            f"a form must be UTF-8 with at most {MOST_PARTS} fields; {str(error)[:200]}."
        ) from error
    return Form(dict(pairs), {})


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
