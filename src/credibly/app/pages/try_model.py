"""Try the run on an image, a text or features: labels, how often they were right, the set."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlencode

import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from credibly.app.server.guard import BODY_LIMIT, HEADERS
from credibly.app.server.responses import page, state_of
from credibly.app.server.uploads import Form, UploadedFile, form_of
from credibly.app.statistics.labels import ObservedShare, observed_share
from credibly.app.store.files import ServedPredictions
from credibly.app.store.model import MOST_CHARACTERS, MOST_PIXELS, ServedModel, parse_features
from credibly.app.store.rows import neighbours, uncertainty
from credibly.app.store.store import FileQuery, Rule, Store
from credibly.checks import InputError
from credibly.data.preparation import Columns
from credibly.types import Array, JsonObject
from credibly.untrusted.images import ImageFolder

SHOWN_LABELS = 20
FARTHEST = 0.05
"""Rows nearer than this (Hellinger distance) are alike, however near others lie."""


@dataclass(frozen=True)
class TriedLabel:
    """One label of the row.

    Attributes:
        label, probability: of the run.
        chosen: whether it is in the set.
        look: whether the rule asks a person to look.
        observed: how often it was present among known rows with about this probability; None where
            the file does not tell.
    """

    label: str
    probability: float
    chosen: bool
    look: bool
    observed: ObservedShare | None


@dataclass(frozen=True)
class KnownRow:
    """A row of the file whose probabilities are like those of the row tried.

    Attributes:
        id, distance: as for ``Neighbour``.
        present: labels that it is annotated with; None without truth.
    """

    id: str
    distance: float
    present: list[str] | None


@dataclass(frozen=True)
class Tried:
    """All that the page says about a row.

    Attributes:
        labels: the most probable ones and those of the set, from the most probable on.
        total: how many labels there are.
        chosen: the set.
        rule: that made it, for people.
        similar: known rows with similar probabilities.
        note: why something is missing; empty if nothing is.
        unlike: why nothing is known about such a row; empty if something is.
    """

    labels: list[TriedLabel]
    total: int
    chosen: list[str]
    rule: str
    similar: list[KnownRow]
    note: str
    unlike: str = ""


def tried(store: Store, asked: FileQuery, prediction: JsonObject) -> Tried:
    """Return what to say about a predicted row.

    Args:
        store: the served files; ``asked`` says which one the row is compared with.
        asked: the address. Its rule makes the set; without one, the run's own rule does.
        prediction: of the run, for one row: labels, probabilities, set, decision.
    """
    asked = asked.model_copy(update={"raw": False})  # the run's probabilities are calibrated
    file = store.file(asked.file, False)
    names: list[str] = prediction["labels"]
    p = np.asarray(prediction["probabilities"][0], dtype=np.float32)
    same = sorted(names) == sorted(file.labels)
    note = "" if same else f"The labels of {file.name} are not those of the run."
    inside, look, words = _own_set(names, prediction)
    if {asked.threshold, asked.average_size, asked.recall, asked.miss} != {None}:
        if not same:
            raise InputError(f"{note} Leave out the rule, which belongs to the file.")
        inside, look, words = _set_by(store.rule(asked), file, names, p)
    order = np.argsort(-p, kind="stable")
    similar = _similar(file, _in_order(p, names, file.labels)) if same else []
    shown = [t for place, t in enumerate(order.tolist()) if place < SHOWN_LABELS or inside[t]]
    return Tried(
        labels=[
            TriedLabel(
                names[t],
                float(p[t]),
                bool(inside[t]),
                bool(look[t]),
                _observed(file, names[t], float(p[t])),
            )
            for t in shown
        ],
        total=len(names),
        chosen=[names[t] for t in order.tolist() if inside[t]],
        rule=words,
        similar=similar,
        note=note,
        unlike=_unlike(file, p, similar[0].distance) if similar else "",
    )


def _unlike(file: ServedPredictions, p: Array, distance: float) -> str:
    """Return why a row is unlike those of the file; empty where it is not."""
    if distance > max(file.usual_distance, FARTHEST):
        return f"No row of {file.name} has similar probabilities."
    if float(uncertainty(p)) > file.usual_uncertainty:
        return f"The model is less sure about it than about 99 of 100 rows of {file.name}."
    return ""


def _own_set(names: Sequence[str], prediction: JsonObject) -> tuple[Array, Array, str]:
    chosen = set(prediction["sets"][0])
    inside = np.array([name in chosen for name in names], dtype=bool)
    return inside, np.zeros(len(names), dtype=bool), "the one saved with the run"


def _set_by(
    rule: Rule, file: ServedPredictions, names: Sequence[str], p: Array
) -> tuple[Array, Array, str]:
    """Return which labels a rule selects, and which it asks to look at, in the order of names."""
    ordered = _in_order(p, names, file.labels)
    inside = rule.decision.predict(ordered[None])[0]
    look = rule.decision.to_review(ordered[None])[0]
    columns = [file.column_of(name) for name in names]
    return inside[columns], look[columns], rule.words


def _in_order(p: Array, names: Sequence[str], wanted: Sequence[str]) -> Array:
    place = {name: position for position, name in enumerate(names)}
    return p[[place[name] for name in wanted]]


def _observed(file: ServedPredictions, label: str, probability: float) -> ObservedShare | None:
    if label not in file.labels:
        return None
    p, y = file.known(label)
    return None if y is None else observed_share(p[:, 0], y[:, 0], probability)


def _similar(file: ServedPredictions, probabilities: Array) -> list[KnownRow]:
    found = []
    for each in neighbours(file.sample, probabilities, ""):
        place = file.index.place(each.id)
        truth = None if place is None or not file.has_truth else file.index.row(place)[1]
        present = None
        if truth is not None and (truth >= 0).any():
            present = [file.labels[t] for t in np.flatnonzero(truth == 1)]
        found.append(KnownRow(each.id, each.distance, present))
    return found


router = APIRouter()

SHORT = 2000
"""Characters of what was typed that go into the address, so that it can be kept as a link."""

NO_MODEL = "Start the server with a trained run: credibly serve PREDICTIONS --run RUN."
FEATURE_ENDINGS = (".csv", ".txt", ".json")


class TryQuery(FileQuery):
    """What to try, typed; and the file and rule that the answer is compared with."""

    text: str = Field("", max_length=SHORT)
    second: str = Field("", max_length=SHORT)
    features: str = Field("", max_length=SHORT)

    @property
    def typed(self) -> dict[str, str]:
        """Return the fields that were filled in."""
        return {name: value for name, value in self.fields.items() if value.strip()}

    @property
    def fields(self) -> dict[str, str]:
        """Return the fields to type in."""
        return {"text": self.text, "second": self.second, "features": self.features}


@dataclass(frozen=True)
class TryAnswer:
    """A prediction, how many rows were given, a note, and the image as the network sees it."""

    prediction: JsonObject
    rows: int = 1
    note: str = ""
    seen: str = ""


@router.get("/try")
async def try_page(request: Request, asked: Annotated[TryQuery, Query()]) -> HTMLResponse:
    return await _answer(request, asked, Form(asked.typed, {}))


@router.post("/try")
async def try_form(request: Request, asked: Annotated[FileQuery, Query()]) -> Response:
    """Predict what a form holds; what is short and was typed goes into the address."""
    where = TryQuery.model_validate(asked.model_dump())
    try:
        form = await form_of(request)
    except InputError as error:
        return _page(request, where, {}, problems={"": str(error)})
    typed = {n: value for n, value in form.fields.items() if n in where.fields and value.strip()}
    if typed and not form.files and sum(map(len, typed.values())) <= SHORT:
        address = "&".join(filter(None, [asked.parameters(), urlencode(typed)]))
        return RedirectResponse(f"/try?{address}", 303)
    return await _answer(request, where, form)


async def _answer(request: Request, asked: TryQuery, form: Form) -> HTMLResponse:
    state = state_of(request)
    model: ServedModel | None = state.model
    if model is None or not (form.fields or form.files):
        nothing = {"": "Choose a file or type something first."}
        return _page(
            request, asked, {}, problems={} if model is None or request.method == "GET" else nothing
        )
    fields = {name: value for name, value in form.fields.items() if name in asked.fields}
    try:
        answer = await model.in_turn(lambda: _predict(model, form))
    except InputError as error:
        of_file = model.kind == "images" or ("file" in form.files and model.kind == "features")
        return _page(
            request, asked, fields, problems={"file" if of_file else model.kind: str(error)}
        )
    try:
        found = await to_thread.run_sync(lambda: tried(state.store, asked, answer.prediction))
    except InputError as error:  # about the rule in the address
        return _page(request, asked, fields, problems={"": str(error)})
    return _page(request, asked, fields, answer, found)


def _page(
    request: Request,
    asked: TryQuery,
    fields: dict[str, str],
    answer: TryAnswer | None = None,
    found: Tried | None = None,
    problems: Mapping[str, str] = MappingProxyType({}),
) -> HTMLResponse:
    """Return the page; a problem that belongs to no field is called ``""``."""
    model: ServedModel | None = state_of(request).model
    kind = "" if model is None else model.kind
    shown = page(
        request,
        "try.html",
        400 if problems else 200,
        kind=kind,
        columns=0 if model is None else model.text_columns,
        width=0 if model is None else int(model.run.data["shape"][0]),
        names=[] if model is None else model.run.feature_names or [],
        reason=_reason(model),
        fields=fields,
        answer=answer,
        found=found,
        problems=problems,
        limits={"bytes": BODY_LIMIT, "pixels": MOST_PIXELS, "characters": MOST_CHARACTERS},
        accept=",".join(ImageFolder.types if kind == "images" else FEATURE_ENDINGS),
        action=f"/try?{asked.parameters(text=None, second=None, features=None)}",
    )
    # The image comes with the page: nothing that is tried is kept on the server.
    policy = HEADERS["content-security-policy"].replace("img-src 'self'", "img-src 'self' data:")
    shown.headers["content-security-policy"] = policy
    return shown


def _reason(model: ServedModel | None) -> str:
    """Return why nothing can be tried here; empty if something can."""
    if model is None:
        return NO_MODEL
    if model.kind not in ("images", "features", "text"):
        return f"The run takes {model.kind}, which cannot be typed here; use `credibly predict`."
    if model.run.keeps_top_labels:
        return "The run keeps the most probable labels of each row; use `credibly predict`."
    return ""


def _predict(model: ServedModel, form: Form) -> TryAnswer:
    """Return the prediction of what a form holds, of the kind that the run takes."""
    if reason := _reason(model):
        raise InputError(reason)
    if model.kind == "text":
        return _predict_text(model, form)
    file = form.files.get("file")
    if model.kind == "images":
        if file is None:
            raise InputError("this run takes images. Choose an image file.")
        pixels = model.pixels(file.content, file.name)
        return TryAnswer(model.predict_rows(pixels[None], _own), seen=_as_png(pixels))
    return _predict_features(model, form.fields.get("features", ""), file)


def _predict_text(model: ServedModel, form: Form) -> TryAnswer:
    file = form.files.get("file")
    if file is None:
        typed = [form.fields.get(name, "") for name in ("text", "second")]
        texts = typed[: model.text_columns]
    else:
        try:
            texts = [file.content.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise InputError(f"{file.name} must be a text in UTF-8; {error.reason}.") from error
    if not any(text.strip() for text in texts):
        raise InputError("this run takes texts. Type or paste one.")
    return TryAnswer(model.predict_texts([texts], _own))


def _predict_features(model: ServedModel, typed: str, file: UploadedFile | None) -> TryAnswer:
    if file is None and not typed.strip():
        raise InputError("this run takes features. Type or paste them, or choose a file.")
    wanted, one = model.run.preparation, np.arange(1)
    if file is None:
        rows, note = parse_features(typed.encode(), "the features", wanted)
    else:
        rows, note = parse_features(file.content, file.name, wanted)
    width = int(model.run.data["shape"][0]) if wanted is None else len(wanted.names)
    if not isinstance(rows, Columns) and rows.shape[1] != width:
        raise InputError(
            f"a row must have the {width:,} features that the run was trained on; got "
            f"{rows.shape[1]:,}."
        )
    shown = rows.take(one) if isinstance(rows, Columns) else rows[:1]
    return TryAnswer(model.predict_rows(shown, _own), rows=len(rows), note=note)


def _own() -> None:
    """Return no rule: the prediction comes with the set by the run's own."""


def _as_png(pixels: Array) -> str:
    """Return an image as the address of a picture inside of the page."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
