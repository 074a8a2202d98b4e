"""Search and errors in one page: rows by a query, labels by what is wrong; one row in full."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import parse_qsl

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from credibly.app.server.responses import page, state_of, table_response
from credibly.app.store.store import (
    COLUMNS,
    ENTRY_KINDS,
    MOST_ENTRIES,
    EntryKind,
    EntryQuery,
    ExploreQuery,
    FileQuery,
    RowQuery,
    Served,
    read_query,
)
from credibly.checks import InputError
from credibly.retrieve import Query as LabelQuery
from credibly.retrieve import parse
from credibly.retrieve.answer import Answer
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.app.server.application import AppState

router = APIRouter()

RAIL = 30
"""Labels beside the rows; the search box finds the others."""


@router.get("/explore")
@router.get("/errors")
def explore_page(request: Request) -> HTMLResponse:
    """Show rows by a query or labels by what is wrong; ``/errors`` begins with those missed."""
    asked, problems = read_query(ExploreQuery, request.query_params)
    if request.url.path == "/errors" and "kind" not in request.query_params:
        asked = asked.model_copy(update={"kind": "missed"})
    state = state_of(request)
    chosen = state.file(asked.file, asked.raw)
    kinds = _kinds(len(state.files), chosen)
    instead = asked.kind not in kinds and asked.kind != "disagreement"
    if instead:  # without truth there are no errors to show
        asked = asked.model_copy(update={"kind": "borderline" if "borderline" in kinds else "rows"})
    answer, found, entries, items, problem, query = None, None, [], [], "", None
    rows, other_name = 0, ""
    if asked.kind in kinds and asked.kind == "disagreement":
        other_name = state.files[asked.compared_with].name
    if asked.low > asked.high:
        problems["high"] = f"must be at least {asked.low:g}; got {asked.high:g}"
        asked = asked.model_copy(update={"high": 1.0})
    try:
        query = parse(asked.q, chosen.labels) if asked.q.strip() else None
        if asked.kind != "rows":
            found = state.store.to_review(asked)
            which = np.arange(asked.start, min(asked.start + asked.top, len(found)))
            entries = state.store.entries_of(asked, found, which)
        elif query is not None:
            answer = chosen.search(asked.q, asked.top, asked.between)
        else:
            rule, places = state.store.rule(asked), chosen.places(asked.between)
            shown, rows = places[asked.start : asked.start + asked.top], len(places)
            items = [chosen.item(id, rule) for id in chosen.ids(shown)]
    except InputError as error:
        problem = str(error)
    return page(
        request,
        "explore.html",
        400 if problem else 422 if problems else 200,
        predictions=chosen,
        asked=asked,
        problems=problems,
        q=asked.q,
        kinds=kinds,
        without_truth=instead,
        answer=answer,
        reasons={} if answer is None or query is None else _reasons(chosen, answer, query),
        found=found,
        entries=entries,
        items=items,
        rows=rows,
        range=_range(asked),
        other_name=other_name,
        holds=ENTRY_KINDS[asked.kind][1],
        rail=_rail(chosen, query),
        rule=state.store.rule(asked),
        most=MOST_ENTRIES,
        decided=_decided(state) or {},
        problem=problem,
        together=chosen.together(query) if asked.also and query is not None else [],
    )


def _range(asked: ExploreQuery) -> str:
    """Return the range that probabilities must lie in, in words; empty for any."""
    low, high = f"{100 * asked.low:.3g} %", f"{100 * asked.high:.3g} %"
    if asked.between is None:
        return ""
    if not asked.low:
        return f"of {high} or less"
    return f"of {low} or more" if asked.high == 1 else f"from {low} to {high}"


def _kinds(files: int, chosen: Served) -> dict[EntryKind, str]:
    """Return the views that there can be, and what to call them."""
    left_out: set[EntryKind] = set() if files > 1 else {"disagreement"}
    if not chosen.has_truth:
        left_out |= {"hit", "missed", "false-alarm", "probably-wrong"}
    if not chosen.every_label:  # other views need a probability for every label
        left_out = {kind for kind in ENTRY_KINDS if kind != "rows"}
    return {kind: words for kind, (words, _) in ENTRY_KINDS.items() if kind not in left_out}


def _rail(chosen: Served, query: LabelQuery | None) -> list[JsonObject]:
    """Return labels with their number of rows, their state, and the queries that change it.

    Empty for a query with alternatives, which no list of labels can show.
    """
    if query is not None and query.formula is not None:
        return []
    wanted, unwanted = ((), ()) if query is None else (query.wanted, query.unwanted)
    counts = chosen.label_counts
    order = sorted(range(len(chosen.labels)), key=lambda t: -counts[t])[:RAIL] if counts else []
    listed = [chosen.labels[t] for t in order or range(min(RAIL, len(chosen.labels)))]
    others = [name for name in (*wanted, *unwanted) if name not in listed]

    def changed(name: str, *, want: bool = False, exclude: bool = False) -> str:
        left = [*(each for each in wanted if each != name), *([name] if want else [])]
        out = [*(each for each in unwanted if each != name), *([name] if exclude else [])]
        return str(LabelQuery(tuple(left), tuple(out))) if left or out else ""

    return [
        {
            "label": name,
            "count": counts[chosen.column_of(name)] if counts else None,
            "state": "want" if name in wanted else "not" if name in unwanted else "",
            "want": changed(name, want=name not in wanted),
            "exclude": changed(name, exclude=name not in unwanted),
        }
        for name in [*others, *listed]
    ]


def _reasons(chosen: Served, answer: Answer, query: LabelQuery) -> dict[str, str]:
    """Return why rows are no hits, by id: which labels are annotated otherwise than was asked."""
    if query.formula is not None:
        return {}
    found = {}
    for hit in answer.hits:
        if hit.truth is False:
            truth = chosen.truth_of(str(hit.id), query.labels)
            lacks = [name for name in query.wanted if truth.get(name) == 0]
            has = [name for name in query.unwanted if truth.get(name) == 1]
            words = [f"no {name}" for name in lacks] + [f"has {name}" for name in has]
            found[str(hit.id)] = ", ".join(words)
    return found


@router.get("/row")
def row_page(request: Request, asked: Annotated[RowQuery, Query()]) -> HTMLResponse:
    state = state_of(request)
    chosen = state.file(asked.file, asked.raw)
    item = chosen.item(asked.id, state.store.rule(asked))
    return page(
        request,
        "row.html",
        asked=asked,
        item=item,
        shown=item.shown(asked.all),
        neighbours=chosen.neighbours(asked.id),
        decided=_decided(state) if chosen.scan.every_label else None,
    )


def _decided(state: AppState) -> dict[tuple[str, str], dict[str, str]] | None:
    """Return the last decisions, by (id, label); None where the server takes none."""
    if state.reviewing is None:
        return None
    return {entry: each.to_dict() for entry, each in state.reviewing.decided().items()}


class ListQuery(EntryQuery):
    """A view of entries as a table."""

    format: Literal["json", "csv"] = "json"


@router.get("/api/entries")
def entries(request: Request, asked: Annotated[ListQuery, Query()]) -> Response:
    """Labels of rows by kind of error, at most 10,000; as JSON or CSV."""
    store = state_of(request).store
    view = EntryQuery.model_validate(asked.model_dump(exclude={"format"}))
    listed = [vars(each) for each in store.entries(view, 0, MOST_ENTRIES)]
    total = store.found(view).total
    return table_response(asked.format, "entries", COLUMNS, listed, total=total)


@router.get("/api/row")
def row(request: Request, asked: Annotated[RowQuery, Query()]) -> JsonObject:
    """One row: every label with its probability, truth and threshold; rows like it."""
    state = state_of(request)
    chosen = state.file(asked.file, asked.raw)
    item = chosen.item(asked.id, state.store.rule(asked))
    return {
        "id": item.id,
        "rule": item.rule,
        "labels": [vars(each) for each in item.labels],
        "neighbours": [vars(each) for each in chosen.neighbours(asked.id)],
    }


@router.post("/api/export", include_in_schema=False)
async def export(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """Chosen entries as a table; the body is a form with one field ``entry`` per entry."""
    body = await request.body()
    chosen, kind = _form(body)
    store = state_of(request).store
    rows = await to_thread.run_sync(lambda: [store.entry(asked, *each) for each in chosen])
    return table_response(kind, "entries", COLUMNS, [vars(each) for each in rows])


def entry_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return ids and labels from JSON."""
    try:
        return [(str(id), str(label)) for id, label in map(json.loads, texts)]
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError("`entry` must be a JSON list of an id and a label.") from error


def _form(body: bytes) -> tuple[list[tuple[str, str]], str]:
    """Return the (id, label) pairs of a form and the format that it asks for."""
    try:
        fields = parse_qsl(body.decode("utf-8"), max_num_fields=MOST_ENTRIES + 10)
    except ValueError as error:
        raise InputError(f"the body must be a form of at most {MOST_ENTRIES:,} entries.") from error
    chosen = entry_pairs([value for name, value in fields if name == "entry"])
    if not chosen:
        raise InputError("nothing is selected. Tick the box of an entry first.")
    return chosen, "csv" if dict(fields).get("format") == "csv" else "json"
