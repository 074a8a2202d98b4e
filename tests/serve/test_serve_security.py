"""Attacks on the server: slow, huge, ambiguous, foreign and injected; none gets anywhere."""

from __future__ import annotations

import asyncio
import itertools
import json
import select
import socket
import threading
import time
from html.parser import HTMLParser
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from credibly import Predictions, report
from credibly.retrieve import Index, search
from credibly.retrieve._formula import quoted
from credibly.serve import _connection, _guard, create_app

MARK = "x-evil"
HOSTILE = [
    f"<{MARK}>",
    f'"><{MARK} onload=evil()>',
    f"'><{MARK}>",
    f"</title></svg></script><{MARK}>",
    f"<!--<{MARK}",
    f"]]><{MARK}>",
    "javascript:alert(1)//x-evil",
    "{{ 7 * 7 }}{% raw %}",
    '"; DROP TABLE rows_read; --',
    "' OR '1'='1",
    "p\") FROM rows_read; COPY (SELECT 1) TO 'evil.txt'; --",
    "`backtick`",
    "line\nbreak\ttab",
    "$x-evil$_{y}",
    "\\frac{1}{\u202e}",
    "%s%n%(name)s",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Predictions whose labels, ids and file name are all attacks."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    p = rng.random((80, len(HOSTILE))).astype(np.float32)
    targets = (rng.random(p.shape) < p).astype(np.int8)
    targets[0], targets[1], targets[:, 3] = 0, -1, 0
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(len(p))]
    path = folder / f"it's <{MARK}> *[a]?.parquet"
    made = Predictions.from_arrays(probabilities=p, targets=targets, labels=HOSTILE, ids=ids)
    made.write(path)
    return path


@pytest.fixture(scope="module")
def served(hostile):
    """The server as the command starts it, but with less patience."""
    listener = socket.create_server(("127.0.0.1", 0))
    images = hostile.parent / "images"
    images.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_connection, "HEAD_SECONDS", 0.6)
        patch.setattr(_guard, "BODY_SECONDS", 0.6)
        served = _connection.server(create_app([hostile, hostile], images=images))
        served.config.log_level = "critical"
        served.config.configure_logging()
        thread = threading.Thread(target=served.run, args=([listener],), daemon=True)
        thread.start()
        while not served.started:
            time.sleep(0.02)
        yield served
        served.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def address(served):
    return "127.0.0.1", served.servers[0].sockets[0].getsockname()[1]


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=30) as client:
        yield client


def ask(address, *pieces: bytes, pause: float = 0.0) -> bytes:
    """What the server answers to these bytes until it closes; a refusal ends the sending."""
    answer = b""
    with socket.create_connection(address, timeout=10) as raw:
        try:
            for piece in pieces:
                raw.sendall(piece)
                if pause and select.select([raw], [], [], pause)[0]:
                    answer += raw.recv(65_536)
                    if b" 408 " in answer:
                        return answer
            while more := raw.recv(65_536):
                answer += more
        except (ConnectionResetError, BrokenPipeError):
            pass  # closed before it had read everything
        return answer


def head(*lines: str, start: str = "GET /api/health HTTP/1.1", host: str = "127.0.0.1") -> bytes:
    lines = (start, f"Host: {host}", *lines, "Connection: close", "", "")
    return "\r\n".join(lines).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# Slow, many, large ---------------------------------------------------------------------------


def test_answers_do_not_wait_for_receipts(served, client):
    """A head and a body sent apart would: the second waits until the client confirms the first."""
    assert client.get("/api/health").status_code == 200
    (ours,) = served.server_state.connections
    socket_of_ours = ours.transport.get_extra_info("socket")
    assert socket_of_ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_a_body_that_trickles_is_refused(address):
    start = time.monotonic()
    request = head("Content-Length: 1000", start="POST /api/predict HTTP/1.1")
    answer = ask(address, request, *[b" "] * 8, pause=0.15)
    assert status(answer) == 408
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("pieces", [[], [b"GET / HT"], [b"GET / HTTP/1.1\r\n", *[b"A: b\r\n"] * 8]])
def test_a_head_that_trickles_is_refused(address, pieces):
    assert status(ask(address, *pieces, pause=0.15)) == 408


def test_a_second_head_that_trickles_is_refused(address):
    first = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = ask(address, first, b"GET ", *[b"/"] * 8, pause=0.15)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answer


def test_idle_connections_do_not_keep_others_out(address, client):
    idle = [socket.create_connection(address, timeout=10) for _ in range(300)]
    try:
        assert client.get("/api/health").status_code == 200
        more = [socket.create_connection(address, timeout=10) for _ in range(150)]
        idle += more
        time.sleep(1.0)  # past the patience: all of them are closed
        with httpx.Client(base_url=client.base_url) as other:
            assert other.get("/api/health").status_code == 200
    finally:
        for one in idle:
            one.close()


@pytest.mark.parametrize(
    "request_head",
    [
        head("X: " + "a" * 40_000),
        head(*[f"X-{i}: {'a' * 100}" for i in range(500)]),
        head(start="GET /" + "a" * 40_000 + " HTTP/1.1"),
        head(start="GET /api/search?q=" + "a" * 9_000 + " HTTP/1.1"),
    ],
)
def test_huge_heads_are_refused(address, request_head):
    answer = ask(address, request_head)
    assert not answer or status(answer) in (400, 414, 431)  # or closed before all was sent
    assert status(ask(address, head())) == 200


# Ambiguous -----------------------------------------------------------------------------------

AMBIGUOUS = {
    "two hosts": head("Host: 127.0.0.1"),
    "a good host, then a bad one": head("Host: evil.example"),
    "a bad host, then a good one": head("Host: 127.0.0.1", host="evil.example"),
    "no host": b"GET /api/health HTTP/1.1\r\nConnection: close\r\n\r\n",
    "no host, old protocol": b"GET /api/health HTTP/1.0\r\n\r\n",
    "two lengths": head("Content-Length: 1", "Content-Length: 2"),
    "a negative length": head("Content-Length: -1"),
    "a length of 5000 digits": head("Content-Length: " + "9" * 5000),
    "a signed length": head("Content-Length: +5"),
    "a blank before the colon": head("Content-Length : 5"),
    "a bare carriage return": head("X: a\rHost: evil.example"),
    "a null byte": head("X: a\0b"),
    "a blank in the target": head(start="GET /api/health evil HTTP/1.1"),
    "the protocol of another service": b"EHLO localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301020001"[:12]) + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("request_head", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_requests_are_refused(address, request_head):
    assert 400 <= status(ask(address, request_head)) < 500


@pytest.mark.parametrize(
    "start",
    [
        "GET http://evil.example/api/health HTTP/1.1",
        "GET //evil.example/labels/ HTTP/1.1",
        "GET /%2f%2fevil.example/ HTTP/1.1",
        "GET /labels%0d%0aSet-Cookie:evil=1/ HTTP/1.1",
        "CONNECT evil.example:80 HTTP/1.1",
        "TRACE / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
    ],
)
def test_odd_targets_lead_nowhere(address, start):
    answer = ask(address, head(start=start))
    assert 400 <= status(answer) < 500
    before = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"location:" not in before
    assert b"\r\nset-cookie" not in before


def test_redirects_stay_here_and_on_one_line(address):
    answer = ask(address, head(start="GET /labels/?q=%0d%0aSet-Cookie:%20evil=1 HTTP/1.1"))
    before = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nset-cookie" not in before
    if b"location:" in before:
        assert b"location: http://127.0.0.1/labels" in before


def test_a_second_request_in_the_body_is_not_answered(address):
    inner = head(start="GET /api/labels HTTP/1.1")
    both = head("Transfer-Encoding: chunked", "Content-Length: 5", start="POST /x HTTP/1.1")
    answer = ask(address, both + b"0\r\n\r\n" + inner)
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", [
    "/static/../_guard.py", "/static/..%2f_guard.py", "/static/%2e%2e/_guard.py",
    "/static/..%5c_guard.py", "/static//etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc",
    "/static/app.js%00.css", "/image?id=..%2f..%2fetc%2fpasswd", "/image?id=%2Fetc%2Fpasswd",
    "/image?id=..%255cevil.png", "/image?id=file:///etc/passwd", "/image?id=~/.ssh/id.png",
    "/image?id=.", "/image?id=%C0%AE%C0%AE%2Fevil.png", "/image?id=a%0d%0ab.png",
])  # fmt: skip
def test_paths_do_not_escape(address, path):
    answer = ask(address, head(start=f"GET {path} HTTP/1.1"))
    assert status(answer) in (400, 404, 422)
    assert b"root:" not in answer
    assert b"import asyncio" not in answer


# Foreign -------------------------------------------------------------------------------------


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
    assert client.get("/", headers={**origin, **LINK}).status_code == 200
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
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers
    kind = headers["content-type"].partition(";")[0]
    assert kind == ("application/json" if path.startswith("/api") else kind)


def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    guard = _guard.Guard(None, ["localhost"])
    asyncio.run(guard({"type": "websocket", "headers": []}, None, send))
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
    asyncio.run(_guard.Guard(app, ["localhost"])(scope, None, send))
    assert not asked
    assert sent[0]["status"] == 400


# Injected ------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Every element and attribute a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs


def assert_harmless(page: str) -> None:
    found = Elements(page)
    assert MARK not in found.tags
    for name, value in found.attributes:
        assert not name.startswith("on"), name
        if name in ("href", "src", "action", "xlink:href"):
            assert not (value or "").strip().lower().startswith(("javascript:", "data:text"))
    assert ">49<" not in page.replace(" ", "")  # a template that was evaluated


@pytest.mark.parametrize("path", ["/", "/labels", "/budget", "/compare"])
def test_names_stay_text_on_every_page(client, path):
    for query in ({"q": "+" + quoted(HOSTILE[0])}, {"q": f"<{MARK}>", "top": "3"}):
        page = client.get(path, params=query)
        assert page.status_code in (200, 400)
        assert_harmless(page.text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_label_has_a_page_and_is_searched_for(client, name):
    page = client.get("/label", params={"name": name})
    assert page.status_code == 200
    assert_harmless(page.text)
    query = f"+{quoted(name)}"
    assert_harmless(client.get("/", params={"q": query}).text)
    answer = client.get("/api/search", params={"q": query, "top": 3})
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["results"]) == 3


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_parameters_come_back_as_text(client, value):
    requests = [("/", key) for key in ("q", "book", "raw", value)]
    requests += [("/label", "name"), ("/budget", "average_size"), ("/image", "id")]
    requests += [(f"/{quote(value)}", "q"), ("/labels", value)]
    for path, key in requests:
        page = client.get(path, params={key: value})
        assert page.status_code < 500
        assert_harmless(page.text)


def test_engines_agree_on_hostile_names(hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resident = Index.read(hostile)
    for first, second in itertools.pairwise(HOSTILE):
        query = f"+{quoted(first)} -{quoted(second)}"
        one, other = resident.search(query, top=5), search(hostile, query, top=5, engine="duckdb")
        assert [hit.id for hit in one.hits] == [hit.id for hit in other.hits]
        assert one.expected_hits == pytest.approx(other.expected_hits)
    assert not list(tmp_path.iterdir())  # no COPY … TO ran


def test_a_report_of_hostile_names_is_harmless(hostile):
    page = report.render({f"</script><{MARK}>": Predictions.read(hostile)}, resamples=3)
    assert_harmless(page)
    for script in page.split("<script")[1:]:
        assert MARK not in script.partition("</script")[0]


def test_errors_are_json_that_says_no_more_than_it_must(client):
    answer = client.get("/api/search", params={"q": f"<{MARK}"})
    assert answer.headers["content-type"] == "application/json"
    assert set(json.loads(answer.text)) == {"error"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
