"""Each kind of request has its own queue: none delays the others, none grows without bound."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from starlette.testclient import TestClient

from credibly.app.server import create_app

HEALTH = "/api/health"
QUEUES = {
    "search": ("/api/search", 3, 48),
    "predict": ("/api/predict/image", 32, 32),
    "file": ("/image", 8, 64),
    "page": ("/api/label", 2, 32),
    "review": ("/api/reviews", 4, 64),
    "upload": ("/import", 4, 16),
}
"""By kind: an address, how many are worked on at once, and how many may be there in all."""


class SlowApp:
    """An application that answers when it is let go, and counts what it works on."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.at_work: Counter[str] = Counter()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.at_work[scope["path"]] += 1
        if scope["path"] != HEALTH:
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def ask(guard: Any, path: str) -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
    said: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "path": path, "method": "GET", "headers": headers}
    await guard({**scope, "query_string": b""}, receive, send)
    return said[0]["status"], json.loads(said[1]["body"]), dict(said[0]["headers"])


@pytest.mark.parametrize("kind", QUEUES)
def test_a_full_queue_refuses_and_leaves_the_others_alone(kind):
    async def attack() -> None:
        app = SlowApp()
        guard: Any = create_app([])
        guard.app = app
        path, at_once, most = QUEUES[kind]
        waiting = [asyncio.create_task(ask(guard, path)) for _ in range(most)]
        await asyncio.sleep(0.05)
        assert app.at_work[path] == at_once
        status, body, headers = await ask(guard, path)
        assert status == 503
        assert kind in body["error"]
        assert headers[b"retry-after"] == b"2"
        assert (await ask(guard, HEALTH))[0] == 200
        others = [other for name, (other, _, _) in QUEUES.items() if name != kind]
        more = [asyncio.create_task(ask(guard, other)) for other in others]
        await asyncio.sleep(0.05)
        assert all(app.at_work[other] == 1 for other in others)
        app.gate.set()
        answers = await asyncio.gather(*waiting, *more)
        assert {status for status, _, _ in answers} == {200}
        assert app.at_work[path] == most
        assert (await ask(guard, path))[0] == 200  # the queue is empty again

    asyncio.run(attack())


def test_work_without_a_thread_to_spare_is_refused_and_tried_again(shelf, monkeypatch):
    with TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"])) as client:
        with monkeypatch.context() as patch:

            def none_left(**_):
                raise RuntimeError("can't start new thread")

            patch.setattr("credibly.app.server.background.Thread", none_left)
            assert client.get("/labels").status_code == 503
        assert client.get("/labels").status_code == 200
