"""The web app under load: many clients at once on a million rows."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

LABELS = 20
QUERIES = ("+l3", "+l3 -l4", "+l1 +l2 -l5", "(l6 | l7) & !l8", "+l9 +l10 -l11 -l12 -l13")


def write_predictions(path: Path, rows: int) -> None:
    """Predictions with truth, written in pieces."""
    from credibly.predictions import Predictions, Writer

    rng = np.random.default_rng(0)
    labels = [f"l{t}" for t in range(LABELS)]
    with Writer(path, labels) as writer:
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            p = 1 / (1 + np.exp(-rng.normal(-3, 2, (count, LABELS))))
            writer.append(
                Predictions.from_arrays(
                    probabilities=p,
                    targets=rng.random(p.shape) < p,
                    labels=labels,
                    ids=[f"row{start + i:08d}" for i in range(count)],
                )
            )


async def load(address: str, clients: int, requests: int) -> tuple[list[float], int]:
    """Seconds of every request, and how many went wrong."""
    import httpx

    times: list[float] = []
    wrong = 0

    async def one(number: int, client: httpx.AsyncClient) -> None:
        nonlocal wrong
        async with client:
            for k in range(requests):
                query = QUERIES[(number + k) % len(QUERIES)]
                start = time.perf_counter()
                answer = await client.get("/api/search", params={"q": query, "top": 20})
                times.append(time.perf_counter() - start)
                wrong += answer.status_code != 200 or len(answer.json()["results"]) != 20

    # Made before the first request: making one takes longer than an answer, in the same thread.
    made = [httpx.AsyncClient(base_url=address, timeout=120) for _ in range(clients)]
    await asyncio.gather(*(one(number, client) for number, client in enumerate(made)))
    return times, wrong


def run(rows: int = 1_000_000, clients: int = 50, requests: int = 10) -> None:
    """Start the server on a temporary file, load it, print latencies."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write_predictions(path, rows)
        server = subprocess.Popen(
            [sys.executable, "-m", "credibly", "serve", str(path), "--port", "0", "--quiet"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            asyncio.run(load(address, 1, len(QUERIES)))  # reads the file, compiles the kernels
            times, wrong = asyncio.run(load(address, clients, requests))
            alone, _ = asyncio.run(load(address, 1, 20))
        finally:
            server.terminate()
            server.wait(30)
    table = Table(title=f"{rows:,} rows × {LABELS} labels, search with expected and real hits")
    for name in ("clients", "requests", "errors", "median", "99th percentile", "a second"):
        table.add_column(name, justify="right")
    for count, seconds, errors in ((clients, times, wrong), (1, alone, 0)):
        share = np.percentile(seconds, [50, 99])
        rate = count / float(np.mean(seconds))
        cells = (
            count,
            len(seconds),
            errors,
            f"{1e3 * share[0]:.0f} ms",
            f"{1e3 * share[1]:.0f} ms",
        )
        table.add_row(*map(str, cells), f"{rate:.0f}")
    console.print(table)
    if wrong:
        raise SystemExit(json.dumps({"errors": wrong}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=10)
    run(**vars(parser.parse_args()))
