"""Pages for single rows and entries: one item, the gallery of errors."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from credibly.app.pages.api import FAILURES, state_of
from credibly.app.served.address import ENTRY_KINDS, MOST_ENTRIES, EntryQuery, FileQuery, RowQuery
from credibly.app.served.entries import COLUMNS
from credibly.app.served.tables import table_response
from credibly.app.server.templates import page
from credibly.checks import InputError

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])


@router.get("/row")
def row_page(request: Request, asked: Annotated[RowQuery, Query()]) -> HTMLResponse:
    state = state_of(request)
    workbench = state.workbench
    item = workbench.item(asked)
    return page(
        request,
        "row.html",
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        item=item,
        shown=item.shown(asked.all),
        beside=workbench.beside(asked),
        neighbours=workbench.neighbours(asked),
        decided=_decided(state),
    )


def _decided(state: Any) -> dict[tuple[str, str], dict[str, str]] | None:
    """Return the last decisions, by (id, label); None where the server takes none."""
    if state.reviewing is None:
        return None
    return {entry: each.to_dict() for entry, each in state.reviewing.decided().items()}


@router.get("/errors")
def errors_page(request: Request, asked: Annotated[EntryQuery, Query()]) -> HTMLResponse:
    state = state_of(request)
    workbench = state.workbench
    kinds = _kinds(len(workbench.files), workbench.file(asked.file, asked.raw).has_truth)
    instead = asked.kind != "disagreement" and asked.kind not in kinds
    if instead:  # without truth there are no errors to show
        asked = asked.model_copy(update={"kind": "borderline"})
    found = workbench.found(asked)
    return page(
        request,
        "errors.html",
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        kinds=kinds,
        without_truth=instead,
        found=found,
        entries=workbench.entries(asked, asked.start, asked.start + asked.top),
        rule=workbench.rule(asked),
        most=MOST_ENTRIES,
        decided=_decided(state) or {},
    )


def _kinds(files: int, truth: bool) -> dict[str, str]:
    """Return the kinds of entries that there can be, and what to call them."""
    needs = {"missed": truth, "false-alarm": truth, "doubtful": truth, "disagreement": files > 1}
    return {kind: words for kind, words in ENTRY_KINDS.items() if needs.get(kind, True)}


class ListQuery(EntryQuery):
    """A view of entries as a table."""

    format: Literal["json", "csv"] = "json"


@api.get("/entries", responses=FAILURES)
def entries(request: Request, asked: Annotated[ListQuery, Query()]) -> Response:
    """Entries of a view, by kind of error and facets, at most 10,000; as JSON or CSV."""
    workbench = state_of(request).workbench
    view = EntryQuery.model_validate(asked.model_dump(exclude={"format"}))
    listed = [each.to_dict() for each in workbench.entries(view, 0, MOST_ENTRIES)]
    total = workbench.found(view).total
    return table_response(asked.format, "entries", COLUMNS, listed, total=total)


@api.get("/row", responses=FAILURES)
def row(request: Request, asked: Annotated[RowQuery, Query()]) -> dict[str, Any]:
    """One row: every label with its probability, truth and threshold; rows like it."""
    workbench = state_of(request).workbench
    item = workbench.item(asked)
    return {
        "id": item.id,
        "rule": item.rule,
        "labels": [vars(each) for each in item.labels],
        "neighbours": [vars(each) for each in workbench.neighbours(asked)],
    }


@api.post("/export", responses=FAILURES, include_in_schema=False)
async def export(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """Chosen entries as a table; the body is a form with one field ``entry`` per entry."""
    body = await request.body()
    chosen, kind = _form(body)
    from anyio import to_thread

    workbench = state_of(request).workbench
    rows = await to_thread.run_sync(lambda: [workbench.entry(asked, *each) for each in chosen])
    return table_response(kind, "entries", COLUMNS, [each.to_dict() for each in rows])


def _form(body: bytes) -> tuple[list[tuple[str, str]], str]:
    """Return the (id, label) pairs of a form and the format that it asks for."""
    try:
        fields = parse_qsl(body.decode("utf-8"), max_num_fields=MOST_ENTRIES + 10)
        pairs = [json.loads(value) for name, value in fields if name == "entry"]
        chosen = [(str(id), str(label)) for id, label in pairs]
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(
            "the body must be a form whose fields `entry` are JSON lists of an id and a label, at "
            f"most {MOST_ENTRIES:,}."
        ) from error
    if not chosen:
        raise InputError("nothing is selected. Tick the box of an entry first.")
    return chosen, "csv" if dict(fields).get("format") == "csv" else "json"
