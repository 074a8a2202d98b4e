"""Putting the server together: state, pages, API, guard, errors."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock

from anyio import create_task_group, sleep, to_thread
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from credibly import __version__
from credibly.app.pages import (
    api,
    compare,
    decide,
    explore,
    import_file,
    labels,
    overview,
    review,
    try_model,
)
from credibly.app.pages.compare import Comparing
from credibly.app.pages.review import NotSaved, Reviewing
from credibly.app.rendering import wanted
from credibly.app.server.background import Busy, NotReady
from credibly.app.server.guard import ALWAYS, Guard
from credibly.app.server.responses import failure, page
from credibly.app.server.uploads import Uploads
from credibly.app.statistics.comparisons import names_of
from credibly.app.store.files import ServedPredictions
from credibly.app.store.images import Thumbnails
from credibly.app.store.model import ServedModel
from credibly.app.store.runs import Runs, RunState, is_folder_of_runs
from credibly.app.store.store import Served, Store, problem_words
from credibly.app.store.top_k import ServedTop
from credibly.checks import InputError
from credibly.files import check_out
from credibly.memory_limits import give_back
from credibly.pipeline import Pipeline
from credibly.predictions.shard import identity
from credibly.retrieve import Joint
from credibly.review import ReviewLog
from credibly.untrusted.images import ImageFolder
from credibly.workflows.rows import holds_top_labels

FOREIGN = set(import_file.ENDINGS) - {".parquet"}
"""Endings of files that must be imported before they can be shown."""
PAGES = (overview, explore, labels, decide, review, compare, try_model, import_file, api)
LOCAL = ("127.0.0.1", "localhost", "::1")
# Requests worked on at once; others wait their turn. The work is computation, so more threads than
# this would not be faster, and each takes memory of its own that it does not give back.
WORKERS = 8
GIVE_BACK_EVERY = 30.0  # seconds
GONE = "a file that is served can no longer be read."
WARM = 2  # files read at the start; others when they are first asked for


@dataclass(frozen=True)
class AppState:
    """Everything the server was started with."""

    files: list[Served]
    open_file: Callable[[Path, str], Served]
    images: ImageFolder | None
    model: ServedModel | None
    texts: Mapping[str, str]
    log: ReviewLog | None
    uploads: Uploads
    runs: Runs | None
    map: Pipeline | None
    workers: int
    thumbnails: Thumbnails = field(default_factory=Thumbnails)

    @property
    def pages(self) -> list[tuple[str, str]]:
        """Return the pages to choose from: path and title."""
        several = len(self.files) > 1 or self.runs is not None
        some = bool(self.files)
        dense = any(file.every_label for file in self.files)
        listed = [
            ("/", "Overview", some),
            ("/explore", "Explore", some),
            ("/labels", "Labels", some),
            ("/decide", "Decide", dense),
            ("/review", "Review", dense and self.reviewing is not None),
            ("/compare", "Compare", several),
            ("/try", "Try it", self.model is not None),
            ("/import", "Import", self.workers == 1),
        ]
        return [(path, title) for path, title, there in listed if there]

    @property
    def first_page(self) -> str:
        """Return the path of the first page that there is."""
        return self.pages[0][0] if self.pages else "/docs"

    @property
    def score_map(self) -> tuple[Pipeline, list[str] | None]:
        """Return what maps scores to probabilities and sets, and the labels of the scores."""
        if self.map is not None:
            return self.map, self.map.labels
        if self.model is None:
            raise InputError(
                "this server has no map of scores. Start it with `credibly serve --map map.json` "
                "or `credibly serve --run RUN`."
            )
        return self.model.run.pipeline, self.model.run.labels

    @cached_property
    def comparing(self) -> Comparing:
        """Return the numbers of all files beside each other."""
        return Comparing(self.files)

    def run_states(self) -> list[RunState]:
        """Return every run and file, in the order of the files; those without predictions last."""
        listed = [] if self.runs is None else self.runs.states()
        there = {each.file for each in listed}
        alone = [
            RunState(file.name, file.path, number)
            for number, file in enumerate(self.files)
            if number not in there
        ]
        return sorted([*alone, *listed], key=lambda each: (each.file is None, each.file or 0))

    async def warm_up(self) -> None:
        """Predict a row, read the files, search each; then work out what the first page shows."""
        if self.model is not None:
            await self.model.warm_up()
        await to_thread.run_sync(self._read, abandon_on_cancel=True)

    def _read(self) -> None:
        for file in self.files[:WARM]:
            with suppress(InputError, OSError):  # told to whoever asks
                file.search(wanted(file.labels[0]), 1)
        for file in self.files[:1]:
            file.begin()

    def close(self) -> None:
        """Delete what was imported and made, and end the processes that decode images."""
        self.uploads.close()
        self.thumbnails.close()
        if self.model is not None:
            self.model.close()

    @cached_property
    def store(self) -> Store:
        """Return the views of rows and entries."""
        return Store(self.files)

    @cached_property
    def reviewing(self) -> Reviewing | None:
        """Return the queue and the decisions; None without a log."""
        return None if self.log is None else Reviewing(self.log, self.store)

    def file(self, number: int, raw: bool) -> Served:
        """Return one of the files, before calibration if asked."""
        return self.store.any(number, raw)


def create_app(
    predictions: Sequence[str | os.PathLike[str]],
    *,
    images: str | os.PathLike[str] | None = None,
    run: str | os.PathLike[str] | None = None,
    texts: str | os.PathLike[str] | None = None,
    text: Sequence[str] | None = None,
    hosts: Sequence[str] = LOCAL,
    partial: bool = False,
    joint: Joint | None = None,
    annotate: str | os.PathLike[str] | None = None,
    map: str | os.PathLike[str] | None = None,
    root_path: str = "",
    workers: int = 1,
) -> Guard:
    """Return the web app, for any ASGI server.

    Args:
        predictions: files to show and to compare: predictions files, folders of shards, runs, or
            a folder of runs, which is listed again while the server runs. A CSV, Arrow or numpy
            file opens the import page, and so does a server without files. With ``run`` alone, the
            app shows the predictions of the run.
        images: folder of images named by row ids.
        run: a trained run; adds ``/api/predict``, ``/api/scores`` and ``/try``.
        texts: data that hold the texts of the rows, shown beside their ids.
        text: the columns with the texts; by default found by their names.
        hosts: names that the server answers to; a request with another Host header is refused.
            With 0.0.0.0 or ::, the server answers to every IP address.
        partial: whether a folder may lack shards; by default that is an error.
        joint: a joint model fitted on other rows; search uses it.
        annotate: file to append the decisions of reviewers to (``cr.review.ReviewLog``). It is the
            only file of yours that the server writes.
        map: a saved pipeline, as ``credibly calibrate --save`` writes it, for ``/api/scores``.
        root_path: prefix that a proxy adds to every path, such as ``/credibly``.
        workers: number of processes that serve this app. With more than one, there is no import
            page, because its files are kept in one process, and no review.

    Example:
        >>> import credibly as cr
        >>> from starlette.testclient import TestClient
        >>> cr.Predictions.from_arrays(
        ...     probabilities=[[0.9, 0.2], [0.1, 0.7]], targets=[[1, 0], [0, 0]],
        ...     labels=["cat", "dog"]).write("predictions.parquet")
        >>> client = TestClient(create_app(["predictions.parquet"]), base_url="http://localhost")
        >>> client.get("/api/health").status_code
        200
    """
    if annotate is not None and workers > 1:
        raise InputError(
            f"reviews are written by one process; got {workers} workers. Leave out --workers or "
            "--annotate."
        )
    root_path = root_path.rstrip("/")
    if root_path and not re.fullmatch(r"(/[\w.~-]+)+", root_path, re.ASCII):
        raise InputError(f"--root-path must be a path such as /credibly; got {root_path!r:.100}.")
    paths = [Path(path) for path in predictions]
    if run is not None and not paths and (Path(run) / "predictions.parquet").exists():
        paths = [Path(run)]
    foreign = [path for path in paths if path.is_file() and path.suffix.lower() in FOREIGN]
    folders = [path for path in paths if path not in foreign and is_folder_of_runs(path)]
    alone = [path for path in paths if path not in (*foreign, *folders)]

    def open_file(path: Path, name: str) -> Served:
        if holds_top_labels(path):
            return ServedTop(path, name, partial=partial)
        return ServedPredictions(path, name, partial=partial, joint=joint)

    files = [open_file(path, name) for path, name in zip(alone, names_of(alone), strict=True)]
    runs = Runs(folders, files, open_file) if folders else None
    shown, model = {}, None
    if texts is not None and files:
        from credibly.data.loading import load_texts

        shown = load_texts(texts, files[0].labels, text=text)
    if run is not None:
        from credibly.train import load

        model = ServedModel(load(os.fspath(run)))
    uploads = Uploads()
    imported = [uploads.refer(path) for path in foreign]
    if annotate is not None:
        check_out(annotate, (".jsonl",), inputs=predictions)
    first_page = ""
    if imported and not files:
        first_page = f"/import?token={imported[0].token}"
    elif model is not None and not predictions:
        first_page = "/try"
    elif runs is not None:
        first_page = "/compare"
    served = AppState(
        files=files,
        open_file=open_file,
        texts=shown,
        images=None if images is None else ImageFolder(images),
        model=model,
        log=None if annotate is None else ReviewLog(annotate),
        uploads=uploads,
        runs=runs,
        map=None if map is None else Pipeline.read(Path(map)),
        workers=workers,
    )
    return Guard(_app(served, root_path), hosts, first_page, root_path)


def _app(served: AppState, root_path: str) -> FastAPI:
    app = FastAPI(
        title="credibly",
        version=__version__,
        description="Search predictions, judge labels and apply decision rules.",
        docs_url=None,  # FastAPI's own page loads scripts from elsewhere; ours is /docs
        redoc_url=None,
        lifespan=_lifespan,
        servers=[{"url": root_path}] if root_path else None,
    )
    app.state.served, app.state.ready, app.state.root_path = served, False, root_path
    app.add_middleware(Current)
    for module in PAGES:
        for route in module.router.routes:
            if isinstance(route, APIRoute) and not route.path.startswith("/api/"):
                route.include_in_schema = False
        if module is not import_file or served.workers == 1:
            app.include_router(module.router, responses=api.FAILURES)
    told = (InputError, Busy, NotSaved, NotReady, OSError, RequestValidationError, HTTPException)
    for kind in told:
        app.add_exception_handler(kind, _failed)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = WORKERS
    async with create_task_group() as tasks:
        # Pages answer meanwhile, with what is worked out or with a page that says what is awaited.
        tasks.start_soon(_warm_up, app.state)
        tasks.start_soon(_give_back_memory, app.state.served.uploads)
        yield
        tasks.cancel_scope.cancel()
    app.state.served.close()


async def _warm_up(state: State) -> None:
    try:
        await state.served.warm_up()
    except Exception:  # whoever asks for it is told
        logging.getLogger("uvicorn.error").exception("the first search or prediction failed")
    state.ready = True


async def _give_back_memory(uploads: Uploads) -> None:
    """Keep memory and disk at what is used: images, queries and files come and go."""
    while True:
        await sleep(GIVE_BACK_EVERY)
        for work in (give_back, uploads.tidy):
            await to_thread.run_sync(work)


async def _failed(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request, as a page for people and as JSON for programs."""
    match error:
        case NotReady() if not request.url.path.startswith("/api/"):
            # Numbers that take long are worked out; the page says which, and looks again.
            again = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return page(request, "wait.html", 202, message=str(error), again=again)
        case NotReady() | Busy():
            answer = failure(request, 503, f"{error}; try again soon.")
            answer.headers["retry-after"] = "2"
            return answer
        case RequestValidationError():
            first = error.errors()[0]
            unsaid = ("query", "body", "lists", "objects")
            place = ".".join(str(part) for part in first["loc"] if part not in unsaid)
            return failure(request, 422, f"`{place}` {problem_words(first)}.")
        case HTTPException():
            unknown = error.detail == "Not Found"
            words = "there is no page at this address." if unknown else str(error.detail)
            return failure(request, error.status_code, words)
        case OSError():  # a file that the server was started with was moved, deleted or damaged
            return failure(request, 500, f"{GONE} Put it back, or start the server again.")
        case _:
            return failure(request, 507 if isinstance(error, NotSaved) else 400, str(error))


class Current:
    """ASGI middleware in front of the pages and the API.

    Files are compared before a request is worked on, and again before it is answered: what was made
    of two versions of a file is not sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._lock = Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(("/static/", *ALWAYS)):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        state = scope["app"].state
        try:
            before = await to_thread.run_sync(self._refresh, state, _file_number(request))
        except (InputError, OSError) as error:
            message = f"{GONE} {error} Put it back."
            await failure(request, 500, message)(scope, receive, send)
            return
        replaced = False

        async def send_if_current(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                now = _identities(state.served.files[: len(before)])
                replaced = now != before
                if replaced:
                    words = "a file was replaced while this page was prepared; try again."
                    await failure(request, 503, words)(scope, receive, send)
            if not replaced:
                await send(message)

        await self.app(scope, receive, send_if_current)

    def _refresh(self, state: State, asked: int) -> list[object]:
        """Open files that were replaced again; return what the files are now.

        A file that is gone is an error for those who ask for it, by its number.
        """
        with self._lock:
            files = state.served.files
            now = _identities(files)
            if asked < len(files) and now[asked] is None:
                identity(files[asked].path)  # says what is wrong
            changed = [n for n, found in enumerate(now) if found not in (None, files[n].identity)]
            open_file = state.served.open_file
            opened = {n: open_file(files[n].path, files[n].name) for n in changed}
            for number, file in opened.items():
                files[number] = file  # in place: the list of runs adds to it
            if opened:
                state.served = replace(state.served)  # without what was worked out before
            return now


def _file_number(request: Request) -> int:
    with suppress(ValueError):
        return max(0, int(request.query_params.get("file", 0)))
    return 0


def _identities(files: list[Served]) -> list[object]:
    """Return what each file is now, None where it is gone."""
    found: list[object] = []
    for file in files:
        try:
            found.append(identity(file.path))
        except (InputError, OSError):
            found.append(None)
    return found
