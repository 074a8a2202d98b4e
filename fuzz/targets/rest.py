"""The web app's pages and API, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fuzz.targets import FolderAttack

MODULES = (
    *("credibly.app.server.guard", "credibly.app.pages.api", "credibly.app.pages.overview"),
    "credibly.retrieve.query",
)


class Target(FolderAttack):
    """A request: method, address, headers and body, one per line. No answer may be a 5xx."""

    def __init__(self) -> None:
        super().__init__()
        from starlette.testclient import TestClient

        from credibly import Predictions
        from credibly.app.server import create_app
        from fuzz.targets.run import _write_run

        rng = np.random.default_rng(0)
        Predictions.from_arrays(
            probabilities=rng.random((40, 3)),
            targets=rng.integers(-1, 2, (40, 3)),
            labels=["a", "<b>", "dining table"],
        ).write(self.folder / "p.parquet")
        run = self.folder / "run"
        run.mkdir()
        _write_run(run)
        app = create_app([self.folder / "p.parquet"], images=self.folder, run=run)
        self.client: Any = TestClient(
            app, base_url="http://127.0.0.1", raise_server_exceptions=True, follow_redirects=False
        )

    def seeds(self) -> Iterable[bytes]:
        yield b"GET\n/api/search?q=%2Ba%20-%22dining+table%22&top=5\nAccept: */*\n\n"
        yield b"GET\n/api/labels?prefix=%3Cb&limit=3&file=0\n\n"
        yield b"GET\n/api/label?name=a&raw=false\n\n"
        yield b"GET\n/api/sets?average_size=1.5\nHost: evil.example\n\n"
        yield b'POST\n/api/predict\nContent-Type: application/json\n\n{"features": [[1, 2]]}'
        yield b"POST\n/api/predict/image?average_size=2\nContent-Length: 3\n\nabc"
        yield b"GET\n/?q=a&file=0\n\n"
        yield b"GET\n/images/..%2f..%2fetc%2fpasswd\n\n"

    def read(self, data: bytes) -> None:
        from urllib.parse import quote_from_bytes

        head, _, body = data.partition(b"\n\n")
        method, _, rest = head.partition(b"\n")
        address, *lines = rest.split(b"\n")
        pairs = (line.decode("ascii", "ignore").partition(": ") for line in lines)
        headers = [(name, value) for name, colon, value in pairs if colon and name.isprintable()]
        # The client refuses to send raw control characters; a server's parser does as well.
        place = quote_from_bytes(address.lstrip(b"/"), safe="/?&=%+:@!$'()*,;~")
        verb = method.decode("ascii", "replace") or "GET"
        answer = self.client.request(
            verb, "http://127.0.0.1/" + place, content=body, headers=headers
        )
        assert answer.status_code < 500, f"{method!r} {address!r}: {answer.status_code}"
