"""Import a file: declare what it holds, calibrate it, and open it in every page."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from pydantic import Field, ValidationError

from credibly.app.charts import reliability_lines, swatch
from credibly.app.server import import_worker
from credibly.app.server.guard import BODY_LIMIT
from credibly.app.server.import_worker import MOST_VALUES
from credibly.app.server.responses import csv_text, page, state_of
from credibly.app.server.uploads import KEPT_SECONDS, Form, Upload, Uploads, form_of
from credibly.app.store.files import ServedPredictions
from credibly.app.store.store import Address, read_query
from credibly.checks import InputError
from credibly.child_processes import Worker
from credibly.names import LOSSES, METHODS, check_loss
from credibly.predictions import Predictions
from credibly.predictions.foreign_files import FilePreview, id_name
from credibly.types import JsonObject

AS_IT_IS = "none"
"""In place of a calibrator: probabilities stay as they are, logits go through their link alone."""

SECONDS = 50.0
"""Of a worker, from its start to its end."""

WAIT_SECONDS = 20.0
MOST_RESULTS = 3
"""Results of one file that are kept."""

TRUTH_WORDS = {"y", "true", "truth", "target", "targets", "label", "gold", "gt", "actual", "is"}
VALUE_WORDS = {
    **dict.fromkeys(("s", "score", "scores", "logit", "logits", "margin"), "logits"),
    **dict.fromkeys(("p", "prob", "proba", "probability", "probabilities"), "probabilities"),
}
"""What names of columns and arrays mean."""


COLUMN_FIELDS = ("value_columns", "truth_columns", "id_column", "label_column")
"""Fields that name columns or arrays of the file; the flags are called alike."""


class ImportQuery(Address):
    """What is declared about a file: the flags of ``credibly calibrate``."""

    token: str = Field("", max_length=100)
    show: bool = False
    values: Literal["logits", "probabilities"] | None = None
    loss: str = Field("bce", max_length=300)
    method: str = Field("auto", max_length=20)
    id_column: str = Field("", max_length=1000)
    value_columns: str = Field("", max_length=1000)
    truth_columns: str = Field("", max_length=1000)
    label_column: str = Field("", max_length=1000)
    suffix: str = Field("", max_length=50)
    coding: Literal["signed", "unknown"] | None = None
    certain: bool = False

    @property
    def layout(self) -> JsonObject:
        """Return how the file names its rows and labels."""
        given = {name: getattr(self, name) or None for name in COLUMN_FIELDS}
        return {**given, "suffix": self.suffix}

    def problems(self) -> dict[str, str]:
        """Return, by field, what no file could make right."""
        found = {}
        if self.values is None:
            found["values"] = (
                "say what the values are, logits or probabilities. This is not guessed."
            )
        try:
            check_loss(self.loss or "bce")
        except InputError as error:
            found["loss"] = str(error)
        if self.method not in (AS_IT_IS, *METHODS):
            found["method"] = f"the calibrator must be one of {', '.join(METHODS)}."
        return found

    def field_of(self, problem: str) -> str:
        """Return the field that an error of the worker is about; empty if it is about the file."""
        signs = {"[0, 1]": "values", "loss ": "loss", "no targets": "truth_columns"}
        signs |= {"the truth of '": "truth_columns"}
        for name in COLUMN_FIELDS:
            if getattr(self, name):
                signs[f"'{getattr(self, name)}'"] = name
        return next((name for sign, name in signs.items() if sign in problem), "")


@dataclass(frozen=True)
class Calibrated:
    """What came of a file: the numbers, and the folder with predictions and map."""

    numbers: JsonObject
    folder: Path


def read_preview(upload: Upload) -> FilePreview:
    """Return what a file holds; worked out once."""
    kept = upload.folder / "preview.json"
    if not kept.exists():
        found = _work({"work": "preview", "path": str(upload.path)}, upload)
        kept.write_text(json.dumps(found), encoding="utf-8")
    return FilePreview(**json.loads(kept.read_text(encoding="utf-8")))


def calibrate(upload: Upload, asked: ImportQuery) -> Calibrated:
    """Return what comes of a file as it was declared; the latest results are kept.

    Raises:
        InputError: if the declaration or the file is not usable.
    """
    if problems := asked.problems():
        raise InputError(" ".join(problems.values()))
    results = upload.folder / "results"
    name = hashlib.sha256(asked.model_dump_json(exclude={"show"}).encode()).hexdigest()[:16]
    folder = results / name
    numbers = folder / "numbers.json"
    if not numbers.exists():
        kept = sorted(results.glob("*"), key=lambda each: each.stat().st_mtime)
        for old in kept[: len(kept) - MOST_RESULTS + 1]:
            shutil.rmtree(old, ignore_errors=True)
        job = {
            "work": "calibrate",
            "path": str(upload.path),
            "truth": None if upload.truth is None else str(upload.truth),
            "out": str(folder),
            "loss": asked.loss or None if asked.values == "logits" else None,
            "layout": asked.layout,
            **asked.model_dump(include={"values", "method", "coding", "certain"}),
        }
        found = _work(job, upload)
        numbers.write_text(json.dumps(found), encoding="utf-8")
    return Calibrated(json.loads(numbers.read_text(encoding="utf-8")), folder)


def _work(job: JsonObject, upload: Upload) -> JsonObject:
    """Return what the worker says; its errors name files as their owner does."""
    with Worker("credibly.app.server.import_worker", SECONDS) as worker:
        output = worker.ask(json.dumps(job).encode())
    limits = import_worker.LIMITS
    if output is None:
        raise InputError(
            f"{upload.path.name} could not be processed within {limits.seconds} seconds and "
            f"{limits.memory // 2**30} GB. Use `credibly calibrate`, or another calibrator."
        )
    answer = json.loads(output)
    if "error" not in answer:
        return answer
    message = str(answer["error"])
    files = (upload.path,) if upload.truth is None else (upload.path, upload.truth)
    for file in files:
        message = message.replace(str(file), file.name)
    # Inside, the columns of the truth are called y:NAME; in the file they need not be.
    raise InputError(re.sub(r"'y:([^']*)'", r"the truth of '\1'", message))


def suggested(names: Sequence[str], *, kinds: Sequence[str] = ()) -> dict[str, str]:
    """Return what the names of columns tell, by field of the form.

    Example:
        >>> suggested(["image_id", "prob_cat", "prob_dog", "true_cat", "true_dog"])
        {'id_column': 'image_id', 'truth_columns': 'true_*', 'value_columns': 'prob_*', \
'values': 'probabilities'}
    """
    is_text = any("str" in kind.lower() for kind in kinds[:1])
    id_column = id_name(names, None, "") or (names[0] if is_text else "")
    others = [name for name in names if name not in (id_column, "split")]
    groups = _groups(others)
    words = {pattern: pattern.strip("*:_.- /").lower() for pattern in groups}
    truth = next((pattern for pattern in groups if words[pattern] in TRUTH_WORDS), "")
    alike = [p for p in groups if p != truth and groups[p] == groups.get(truth)]
    values = next((p for p in alike if words[p] in VALUE_WORDS), next(iter(alike), ""))
    if truth and not values and groups[truth] <= set(others):
        values = "*"  # plain names beside those of the truth
    found = {"id_column": id_column, "truth_columns": truth, "value_columns": values}
    found["values"] = VALUE_WORDS.get(words.get(values, ""), "")
    return {field: value for field, value in found.items() if value}


def _groups(names: Sequence[str]) -> dict[str, set[str]]:
    """Return patterns of one star that names share, and the labels that each stands for."""
    found: dict[str, set[str]] = {}
    for name in names:
        for sign in (":", "_", ".", "-", " ", "/"):
            if sign in name.strip(sign):
                before, _, after = name.partition(sign)
                found.setdefault(before + sign + "*", set()).add(after)
                before, _, after = name.rpartition(sign)
                found.setdefault("*" + sign + after, set()).add(before)
    return found


def suggested_arrays(names: Sequence[str]) -> dict[str, str]:
    """Return what the names of arrays tell; the usual names need no word."""
    values = next((name for name in names if name.lower() in VALUE_WORDS), "")
    truth = next((name for name in names if name.lower() in TRUTH_WORDS), "")
    found = {"value_columns": values, "truth_columns": truth}
    known = ("scores", "probabilities", "targets", "labels")
    told = {field: name for field, name in found.items() if name and name not in known}
    return told | ({"values": VALUE_WORDS[values.lower()]} if values else {})


def command(upload: Upload, asked: ImportQuery) -> str:
    """Return the command that does the same."""
    flags = {
        "--as": asked.values,
        "--loss": asked.loss if asked.values == "logits" else None,
        "--method": asked.method,
        "--truth": None if upload.truth is None else upload.truth.name,
    }
    same = (*COLUMN_FIELDS, "suffix", "coding")
    flags |= {f"--{name.replace('_', '-')}": getattr(asked, name) for name in same}
    given = [part for flag, value in flags.items() if value for part in (flag, value)]
    given += ["--certain"] if asked.certain else []
    words = ["credibly", "calibrate", upload.path.name, *given, "--out", "predictions.parquet"]
    return shlex.join([*words, "--save", "map.json"])


router = APIRouter()

SHOWN_COLUMNS = 12
STAGE_COLUMNS = {"NLL": "down", "ACE": "down", "ECE": "down", "Brier": "down", "mAP@y": "up"}
ENDINGS = (".csv", ".parquet", ".npz", ".npy", ".arrow", ".feather")


class FileOfQuery(ImportQuery):
    """A result to take away."""

    format: Literal["parquet", "csv", "map"] = "parquet"


@router.get("/import")
async def import_page(request: Request) -> HTMLResponse:
    asked, problems = read_query(ImportQuery, request.query_params)
    if not asked.token:
        return _page(request, asked)
    uploads: Uploads = state_of(request).uploads
    try:
        upload = uploads.find(asked.token)
    except InputError as error:
        return _refused(request, str(error))
    try:
        found = await uploads.turns.run(lambda: read_preview(upload), WAIT_SECONDS)
    except InputError as error:
        uploads.forget(asked.token)
        return _refused(request, str(error))
    if not asked.show:
        return _page(request, _with_suggestion(asked, found), upload, found)
    if problems := asked.problems() | problems:
        return _page(request, asked, upload, found, problems=problems)
    try:
        result = await uploads.turns.run(lambda: calibrate(upload, asked), WAIT_SECONDS)
    except InputError as error:
        return _page(
            request, asked, upload, found, problems={asked.field_of(str(error)): str(error)}
        )
    uploads.tidy()
    return _page(request, asked, upload, found, result)


@router.post("/import")
async def upload_file(request: Request) -> Response:
    """Keep the files of a form for a while; a form without files says what to do with one."""
    uploads: Uploads = state_of(request).uploads
    try:
        form = await form_of(request)
        upload = await to_thread.run_sync(_kept, uploads, form)
    except InputError as error:
        return _refused(request, str(error))
    if upload is None:
        return RedirectResponse("/import", 303)
    return RedirectResponse("/import?" + urlencode({"token": upload.token}), 303)


def _kept(uploads: Uploads, form: Form) -> Upload | None:
    token, file, truth = (
        form.fields.get("token", ""),
        form.files.get("file"),
        form.files.get("truth"),
    )
    if token and "forget" in form.fields:
        uploads.forget(token)
        return None
    for given in filter(None, (file, truth)):
        if given.ending not in ENDINGS:
            raise InputError(
                f"{given.name} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."
            )
    if token and truth is not None:
        return uploads.add_truth(token, truth)
    if file is None:
        raise InputError("choose a file first.")
    return uploads.add(file, truth)


@router.post("/import/open")
async def open_result(request: Request) -> Response:
    """Add what was imported to the served files, so that every page shows it."""
    state = state_of(request)
    try:
        form = await form_of(request)
        asked = ImportQuery.model_validate(form.fields)
        upload = state.uploads.find(asked.token)
        found = await state.uploads.turns.run(lambda: read_preview(upload), WAIT_SECONDS)
    except (InputError, ValidationError) as error:
        words = str(error) if isinstance(error, InputError) else "the form is not complete."
        return _refused(request, words)
    try:
        result = await state.uploads.turns.run(lambda: calibrate(upload, asked), WAIT_SECONDS)
        number = await to_thread.run_sync(lambda: _opened(state, upload, result))
    except InputError as error:
        problems = asked.problems() or {asked.field_of(str(error)): str(error)}
        return _page(request, asked, upload, found, problems=problems)
    return RedirectResponse(f"/?file={number}", 303)


def _opened(state: Any, upload: Upload, result: Calibrated) -> int:
    path = state.uploads.keep(result.folder / "predictions.parquet")
    state.files.append(ServedPredictions(path, upload.path.stem))
    state.files[-1].begin()
    return len(state.files) - 1


@router.get("/import/file")
async def result_file(request: Request, asked: Annotated[FileOfQuery, Query()]) -> Response:
    """A calibrated file, or the fitted map, to take away."""
    uploads: Uploads = state_of(request).uploads
    upload = uploads.find(asked.token)
    declared = ImportQuery.model_validate(asked.model_dump(exclude={"format"}))
    result = await uploads.turns.run(lambda: calibrate(upload, declared), WAIT_SECONDS)
    stem = upload.path.stem
    if asked.format == "map":
        return FileResponse(result.folder / "map.json", headers=_attached(f"{stem}-map.json"))
    if asked.format == "parquet":
        path = result.folder / "predictions.parquet"
        return FileResponse(path, headers=_attached(f"{stem}-calibrated.parquet"))
    text = await to_thread.run_sync(lambda: _as_csv(result))
    return Response(text, media_type="text/csv", headers=_attached(f"{stem}-calibrated.csv"))


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}


def _as_csv(result: Calibrated) -> str:
    """Return ids and calibrated probabilities."""
    rows = Predictions.read(result.folder / "predictions.parquet")
    cells = zip(rows.ids, rows.probabilities.tolist(), strict=True)
    return csv_text([["id", *rows.labels], *([id, *row] for id, row in cells)])


def _with_suggestion(asked: ImportQuery, found: FilePreview) -> ImportQuery:
    tabular = found.tabular
    told = suggested(found.names, kinds=found.kinds) if tabular else suggested_arrays(found.names)
    return asked.model_copy(update=told)


def _refused(request: Request, words: str) -> HTMLResponse:
    """Return the page without a file, and why none is shown."""
    return _page(request, ImportQuery.model_validate({}), problems={"": words})


def _page(
    request: Request,
    asked: ImportQuery,
    upload: Upload | None = None,
    preview: FilePreview | None = None,
    result: Calibrated | None = None,
    problems: Mapping[str, str] = MappingProxyType({}),
) -> HTMLResponse:
    """Return the page; a problem that belongs to no field is called ``""``."""
    return page(
        request,
        "import.html",
        400 if problems else 200,
        asked=asked,
        upload=upload,
        preview=preview,
        shown_columns=SHOWN_COLUMNS,
        result=None if result is None else result.numbers,
        drawing="" if result is None else reliability_lines(result.numbers.get("diagrams", {})),
        declared={n: v for n, v in asked.model_dump(exclude={"show"}).items() if v},
        swatch=swatch,
        columns=STAGE_COLUMNS,
        command="" if upload is None or result is None else command(upload, asked),
        downloads="/import/file?" + asked.parameters(),
        losses=sorted(LOSSES),
        methods=METHODS,
        problems=problems,
        accept=",".join(ENDINGS),
        limits={"bytes": BODY_LIMIT, "numbers": MOST_VALUES, "minutes": int(KEPT_SECONDS // 60)},
    )
