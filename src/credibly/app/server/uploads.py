"""Forms and the files in them: kept for a while, a bounded number of bytes, deleted at exit."""

from __future__ import annotations

import itertools
import secrets
import shutil
import tempfile
import time
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from urllib.parse import parse_qsl

from anyio import to_thread
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from credibly.app.server.background import Turns
from credibly.app.server.guard import BODY_LIMIT
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
        return "".join(self.name.lower().rpartition(".")[1:]) if "." in self.name else ""


@dataclass(frozen=True)
class Form:
    """Fields and files by name; those that were left empty are not there."""

    fields: dict[str, str]
    files: dict[str, UploadedFile]


async def form_of(request: Request) -> Form:
    """Return the fields and files of a request, read in a thread."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    return await to_thread.run_sync(read_form, kind, body)


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

    def on_part(part: Field | File) -> None:
        if next(parts) > MOST_PARTS:
            raise InputError(f"a form must have at most {MOST_PARTS} fields.")
        if isinstance(part, File):
            on_file(part)
        elif part.value:
            fields[_text(part.field_name)] = _text(part.value)

    def on_file(file: File) -> None:
        name = _text(file.file_name).replace("\\", "/").rpartition("/")[2][:200]
        file.file_object.seek(0)
        content = file.file_object.read()
        file.close()
        if name or content:
            files[_text(file.field_name)] = UploadedFile(name or "file", content)

    try:
        parser = FormParser(
            kind.decode("latin-1"),
            on_part,
            on_part,
            boundary=options.get(b"boundary"),
            config={"MAX_MEMORY_FILE_SIZE": BODY_LIMIT},
        )
        parser.write(body)
        parser.finalize()
    except InputError:
        raise
    except (FormParserError, ValueError) as error:
        raise InputError(
            "the body must be a complete form, multipart/form-data or URL-encoded; this one "
            "ends early or is damaged."
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


class TemporaryFolder:
    """A folder that only its owner can read; ``close``, or the end of the program, deletes it.

    It is made when it is first asked for, and anew after it was closed.
    """

    @cached_property
    def path(self) -> Path:
        """Return where it is."""
        path = Path(tempfile.mkdtemp(prefix="credibly-"))
        self._delete = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path

    def close(self) -> None:
        """Delete the folder and everything in it."""
        if vars(self).pop("path", None) is not None:
            self._delete()


MOST_UPLOADS = 8
MOST_BYTES = 256 * 2**20
"""Of all files and results together; the oldest go first."""

MOST_OPEN = 8
"""Imported files that are open in all pages."""

KEPT_SECONDS = 3600.0
"""Since they were last looked at."""


@dataclass
class Upload:
    """A file that somebody brought, alone in a folder with what was made of it.

    Attributes:
        token: its name in addresses; nobody guesses it.
        folder: where it is.
        path: of the file, with the name that its owner gave it.
        truth: file of the truth; None where there is none apart.
        used: when it was last looked at.
        given: whether the server was started with the file, which is then never deleted.
    """

    token: str
    folder: Path
    path: Path
    truth: Path | None = None
    used: float = field(default_factory=time.monotonic)
    given: bool = False

    @property
    def size(self) -> int:
        """Return how many bytes it takes, results included."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


class Uploads:
    """The files of all people; what is too old or too much is deleted.

    Attributes:
        turns: bound on the files that are read at once.
    """

    def __init__(self) -> None:
        self._uploads: dict[str, Upload] = {}
        self.turns = Turns(1, "file is being read")
        self._lock = RLock()
        self._folder = TemporaryFolder()

    def add(self, file: UploadedFile, truth: UploadedFile | None) -> Upload:
        """Keep a file, and perhaps the file of its truth."""
        with self._lock:
            token, folder = secrets.token_urlsafe(18), self._new_folder()
            self._uploads[token] = Upload(token, folder, _written(folder / "values", file))
            if truth is not None:
                self._uploads[token].truth = _written(folder / "truth", truth)
            self.tidy()
            return self._uploads[token]

    def refer(self, path: Path) -> Upload:
        """Offer a file that lies on this machine; it stays where it is."""
        token = secrets.token_urlsafe(18)
        self._uploads[token] = Upload(token, self._new_folder(), path.resolve(), given=True)
        return self._uploads[token]

    def keep(self, result: Path) -> Path:
        """Return a copy of a result that stays until the server stops, for all pages to show."""
        with self._lock:
            if len(list(self._folder.path.glob("open-*"))) >= MOST_OPEN:
                raise InputError(
                    f"at most {MOST_OPEN} imported files can be open. Start the server again."
                )
            return Path(shutil.copy2(result, self._new_folder("open-") / result.name))

    def _new_folder(self, prefix: str | None = None) -> Path:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._folder.path))

    def add_truth(self, token: str, file: UploadedFile) -> Upload:
        """Keep the truth of a file that is there, in place of one given before."""
        upload = self.find(token)
        with self._lock:
            upload.truth = _written(upload.folder / "truth", file)
            shutil.rmtree(upload.folder / "results", ignore_errors=True)
            self.tidy()
        return upload

    def find(self, token: str) -> Upload:
        """Return a file that is still there.

        Raises:
            InputError: if it is gone.
        """
        with self._lock:
            self.tidy()
            upload = self._uploads.get(token)
            if upload is None:
                minutes = KEPT_SECONDS / 60
                raise InputError(
                    f"this file is no longer here: files are kept for {minutes:.0f} minutes, at "
                    f"most {MOST_UPLOADS} of them. Import it again."
                )
            upload.used = time.monotonic()
            return upload

    def forget(self, token: str) -> None:
        """Delete a file and everything made of it."""
        with self._lock:
            upload = self._uploads.pop(token, None)
            if upload is not None:
                shutil.rmtree(upload.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Delete what is too old or too much, the oldest first.

        The newest stays while it is not too old: it is bounded by the size of a request.
        """
        with self._lock:
            mine = [each for each in self._uploads.values() if not each.given]
            mine.sort(key=lambda each: each.used)
            sizes = [each.size for each in mine]
            for place, each in enumerate(mine):
                left = len(mine) - place
                much = left > MOST_UPLOADS or sum(sizes[place:]) > MOST_BYTES
                if each.used > time.monotonic() - KEPT_SECONDS and (left == 1 or not much):
                    break
                self.forget(each.token)

    def close(self) -> None:
        """Delete everything."""
        with self._lock:
            self._uploads.clear()
            self._folder.close()


def _written(folder: Path, file: UploadedFile) -> Path:
    """Write a file into a folder that is new, under a name that is safe, alike to its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stem = file.name[: -len(file.ending)] if file.ending else file.name
    letters = "".join(each if each.isalnum() or each in " ._-" else "_" for each in stem)
    ending = "".join(each for each in file.ending if each.isalnum() or each == ".")
    path = folder / ((letters.strip(" .")[:60] or "file") + ending[:10])
    path.write_bytes(file.content)
    return path
