"""Pages and requests of reviewing; they are there when the server was started with a log."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field

from credibly.app.pages.address import EntryQuery, FileQuery
from credibly.app.pages.rest import FAILURES, parsed_body, require_json, state_of
from credibly.app.served.reviewing import MOST_REVIEWS, Reviewing
from credibly.app.served.tables import table_response
from credibly.app.server.templates import page
from credibly.app.views import COLUMNS
from credibly.checks import InputError
from credibly.review import VALUES

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
api = APIRouter(prefix="/api", tags=["api"])

LOG_COLUMNS = ("id", "label", "value", "who", "when")


class QueueQuery(EntryQuery):
    """A part of the queue, and who looks at it."""

    who: str = Field("", max_length=100)


class Decision(BaseModel):
    """What a person decided about one entry."""

    id: str = Field(max_length=1000)
    label: str = Field(max_length=1000)
    value: Literal["present", "absent", "unsure"]


class Decisions(BaseModel):
    """Decisions of one person."""

    who: str = Field("", max_length=100)
    reviews: list[Decision] = Field(min_length=1, max_length=MOST_REVIEWS)


class LogQuery(FileQuery):
    """The log, in a format."""

    format: Literal["json", "csv"] = "json"


def _reviewing(request: Request) -> Reviewing:
    reviewing = state_of(request).reviewing
    if reviewing is None:
        raise InputError(
            "this server does not take decisions. Start it with "
            "`credibly serve PREDICTIONS --annotate corrections.jsonl`."
        )
    return reviewing


@router.get("/review")
def review_page(request: Request, asked: Annotated[QueueQuery, Query()]) -> HTMLResponse:
    reviewing = state_of(request).reviewing
    if reviewing is None:
        return page(request, "review.html", number=asked.file, raw=asked.raw, reviewing=None)
    queue, total = reviewing.queue(asked, asked.top)
    return page(
        request,
        "review.html",
        number=asked.file,
        raw=asked.raw,
        asked=asked,
        reviewing=reviewing,
        queue=queue,
        total=total,
        decided=reviewing.decided(),
        values=list(VALUES),
        predictions=reviewing.workbench.file(asked.file, asked.raw),
    )


@router.post("/review")
async def decide_by_form(request: Request, asked: Annotated[QueueQuery, Query()]) -> Response:
    """Save the decision of a button, for browsers without scripts; then show the queue again."""
    body = await request.body()
    reviewing = _reviewing(request)
    try:
        fields = parse_qsl(body.decode("utf-8"), max_num_fields=10)
        id, label, value = json.loads(dict(fields)["decision"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("the field `decision` must be a JSON list of id, label, value.") from error
    who = dict(fields).get("who", asked.who)[:100]
    chosen = [(str(id), str(label), str(value))]
    await to_thread.run_sync(lambda: reviewing.save(asked, chosen, who))
    return RedirectResponse("/review?" + asked.parameters(), 303)


@router.get("/review/effect")
def effect_page(request: Request, asked: Annotated[FileQuery, Query()]) -> HTMLResponse:
    reviewing = state_of(request).reviewing
    effect = None if reviewing is None else reviewing.effect(asked)
    return page(
        request,
        "effect.html",
        number=asked.file,
        raw=asked.raw,
        reviewing=reviewing,
        effect=effect,
        columns=COLUMNS,
    )


@api.post(
    "/reviews",
    responses=FAILURES,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": Decisions.model_json_schema()}},
        }
    },
)
async def save_reviews(request: Request, asked: Annotated[FileQuery, Query()]) -> dict[str, Any]:
    """Write decisions about entries to the log; they are on the disk when this answers."""
    body = await request.body()
    reviewing = _reviewing(request)
    require_json(request)
    given = parsed_body(Decisions, body)
    chosen = [(each.id, each.label, each.value) for each in given.reviews]
    total = await to_thread.run_sync(lambda: reviewing.save(asked, chosen, given.who))
    return {"saved": len(chosen), "decided": total}


@api.get("/reviews", responses=FAILURES)
def reviews(request: Request, asked: Annotated[LogQuery, Query()]) -> Response:
    """The last decision about each entry, as JSON or CSV."""
    rows = [each.to_dict() for each in _reviewing(request).decided().values()]
    return table_response(asked.format, "reviews", LOG_COLUMNS, rows)


@api.get("/queue/label-studio", responses=FAILURES)
def label_studio_tasks(request: Request, asked: Annotated[EntryQuery, Query()]) -> Response:
    """The undecided entries as tasks of Label Studio, one task per row, at most 1,000 entries."""
    from credibly.review import label_studio

    state = state_of(request)
    issues = _reviewing(request).issues(asked)
    tasks = label_studio.tasks(issues, data="image" if state.images else "text")
    for task in tasks:
        text = state.texts.get(task["data"]["id"])
        if text is not None:
            task["data"]["text"] = text
    headers = {"content-disposition": 'attachment; filename="tasks.json"'}
    return JSONResponse(tasks, headers=headers)
