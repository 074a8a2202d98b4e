"""Other names, origins and sites: none may read, embed or act."""

from __future__ import annotations

import asyncio

import pytest
from attacks import ask, head, status

from credibly.app.server import create_app


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil.example@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1:evil", "127.0.0.1:80:80",
    "[::1]evil.example", "[::1", "0.0.0.0", "127.1", "2130706433", "0x7f000001", "localhost.",
    "127.0.0.1/", "127.0.0.1#", "127.0.0.1, evil.example", "\xe9vil",
])  # fmt: skip
def test_a_name_that_is_not_ours_is_refused(address, host):
    """DNS rebinding: the browser believes it talks to evil.example, and says so in Host."""
    answer = ask(address, head(host=host.format(port=address[1])))
    assert status(answer) in (400, 421)


SITES = ["cross-site", "same-site"]
FETCH = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("site", SITES)
def test_other_sites_cannot_read_or_embed(client, site):
    origin = {"sec-fetch-site": site}
    for path in ("/api/health", "/api/search?q=a", "/api/labels", "/api/nothing"):
        for how in (FETCH, FRAME, LINK, {}):
            assert client.get(path, headers={**origin, **how}).status_code == 403
    for path in ("/", "/image?id=a", "/static/app.js", "/openapi.json"):
        for how in (FETCH, FRAME, {}):
            assert client.get(path, headers={**origin, **how}).status_code == 403
    assert client.get("/", headers={**origin, **LINK}).status_code in (200, 202)
    assert client.post("/", headers={**origin, **LINK}).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "file://", "http://127.0.0.1:1", "http://[::1]"]
)
def test_other_origins_are_refused(client, origin):
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        answer = client.request(method, "/api/predict", headers={"origin": origin})
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_our_own_pages_are_answered(client):
    own = {"sec-fetch-site": "same-origin", "origin": str(client.base_url).rstrip("/")}
    assert client.get("/api/health", headers=own).status_code == 200
    answer = client.post("/api/predict", json={"features": [[1.0]]}, headers=own)
    assert answer.status_code == 400  # no model here, but let through


@pytest.mark.parametrize(
    "path", ["/", "/labels", "/docs", "/api/health", "/api/nothing", "/nothing", "/static/icon.svg"]
)
def test_no_answer_may_be_framed_sniffed_or_shared(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "same-origin"  # forms of ours must say where they are from
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers
    kind = headers["content-type"].partition(";")[0]
    assert kind == ("application/json" if path.startswith("/api") else kind)


def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(create_app([])({"type": "websocket", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("name", [b"host", b"Host", b"content-length", b"origin"])
def test_the_guard_itself_refuses_doubled_headers(name):
    """Under servers that let them pass."""
    sent, asked = [], []

    async def send(message):
        sent.append(message)

    async def app(scope, receive, send):
        asked.append(scope)

    values = {b"origin": b"http://localhost", b"content-length": b"0"}
    doubled = [(name, values.get(name, b"localhost"))] * 2
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    scope["headers"] = [*([] if name.lower() == b"host" else scope["headers"]), *doubled]
    guard = create_app([])
    guard.app = app
    asyncio.run(guard(scope, None, send))
    assert not asked
    assert sent[0]["status"] == 400
