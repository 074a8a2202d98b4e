"""Mixed traffic for a long time: do errors come, does memory grow?

``python -m benchmarks.studies.load --minutes 30 --rate 20``

A server with predictions and a small run on images, and one with a run on texts, get requests at a
fixed rate, whether or not earlier ones are answered: searches, crossed conjunctions (whose diagram
is large), uploaded images (a few of them far larger than the network's), texts, images, label
pages, budgets and queries that must be refused. Health of both is asked every second; memory is
that of both together. How much that is depends on how many requests meet, so it is also taken at
rest: after the warm-up and at the end, a minute without requests. What a program keeps shows there.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve import LABELS, write_predictions

KINDS = {  # in a hundred requests
    "search": 40,
    "crossed": 5,
    "upload": 20,
    "text": 10,
    "image": 15,
    "labels": 4,
    "sets": 2,
    "label": 1,
    "page": 1,
    "refused": 2,
}
BUSY = 503  # an answer, not a failure: so much of one kind is worked on already
SIDE = 16
REST = 60.0  # seconds; the server gives memory back every half minute
WORDS = ["red", "dog", "tree", "car", "the", "of", "<b>", "naïve"]
IMAGES = 200  # the first rows have a picture


@dataclass
class Tally:
    """What came back."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    problems: list[str] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    busy: int = 0
    memory: list[tuple[float, float]] = field(default_factory=list)  # minutes, MB
    at_rest: list[float] = field(default_factory=list)  # MB, after the warm-up and at the end

    @property
    def answered(self) -> int:
        return sum(map(len, self.seconds.values()))


def main(minutes: float, rate: float, rows: int, warm_up: float) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_predictions(folder / "load.parquet", rows)
        _train(folder / "run")
        write_images(folder / "images", IMAGES)
        _train_on_texts(folder / "texts")
        main_one = [str(folder / "load.parquet"), "--run", str(folder / "run")]
        main_one += ["--images", str(folder / "images")]
        on_texts = [str(folder / "texts/predictions.parquet"), "--run", str(folder / "texts")]
        servers = [_start(main_one), _start(on_texts)]
        try:
            addresses = [_address(server) for server in servers]
            pids = [server.pid for server in servers]
            tally = asyncio.run(_traffic(addresses, pids, rate, [warm_up, minutes]))
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait(30)
    print(json.dumps(_summary(tally, minutes, rate, rows, warm_up), indent=1), flush=True)
    for problem in tally.problems[:20]:
        print(problem, file=sys.stderr)
    return 1 if tally.problems else 0


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "credibly", "serve", *arguments, "--port", "0", "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _address(server: subprocess.Popen[str]) -> str:
    """Return where a server listens, once it is warm."""
    import httpx

    assert server.stdout is not None
    address = server.stdout.readline().split()[0]
    for _ in range(600):
        try:
            if httpx.get(f"{address}/api/health").status_code == 200:
                return address
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"{address} is not ready after two minutes")


def write_images(folder: Path, count: int) -> None:
    """Photographs' sizes on disk, 2 to 300 kB, under the ids of the first rows."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        size = int(rng.integers(30, 500))
        pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"row{number:08d}.jpg", quality=90)


def _train(folder: Path) -> None:
    import credibly as cr

    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (200, SIDE, SIDE, 3), dtype=np.uint8)
    targets = rng.integers(0, 2, (200, 4)).astype(np.int8)
    np.savez(folder.with_suffix(".npz"), images=pixels, targets=targets, labels=list("abcd"))
    data = cr.data.load(str(folder.with_suffix(".npz")))
    cr.train.fit(data, cr.train.recipe(model="cnn", hidden=8, epochs=1), folder=folder)


def _train_on_texts(folder: Path) -> None:
    import credibly as cr

    dice = random.Random(2)
    texts = [_text(dice) for _ in range(300)]
    lines = [
        {"id": f"{row}", "text": text, "y:red": int("red" in text), "y:dog": int("dog" in text)}
        for row, text in enumerate(texts)
    ]
    file = folder.with_suffix(".jsonl")
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    cr.train.fit(cr.data.load(file), cr.train.recipe("tfidf", epochs=1), folder=folder)


def _text(dice: random.Random) -> str:
    return " ".join(dice.choices(WORDS, k=dice.choice((1, 5, 20, 500))))


async def _traffic(addresses: list[str], pids: list[int], rate: float, ends: list[float]) -> Tally:
    """Requests by the clock up to each of these minutes, then rest; memory every five seconds."""
    import httpx

    tally, dice = Tally(), random.Random(0)
    limits = httpx.Limits(max_connections=50)
    async with (
        httpx.AsyncClient(base_url=addresses[0], timeout=60, limits=limits) as client,
        httpx.AsyncClient(base_url=addresses[1], timeout=60, limits=limits) as texts,
    ):
        probes = [asyncio.create_task(_probe(address, tally)) for address in addresses]
        for begin, end in zip([0.0, *ends], ends, strict=False):
            await _requests(client, texts, dice, tally, rate, (begin, end), pids)
            await asyncio.sleep(REST)
            tally.at_rest.append(sum(map(resident, pids)))
            print(f"at rest after minute {end:g}: {tally.at_rest[-1]:.0f} MB", flush=True)
        for probe in probes:
            probe.cancel()
    return tally


async def _requests(
    client: Any,
    texts: Any,
    dice: random.Random,
    tally: Tally,
    rate: float,
    minutes: tuple[float, float],
    pids: list[int],
) -> None:
    """Send requests between two minutes of the traffic; return when all are answered."""
    waiting: set[asyncio.Task[None]] = set()
    begin, end = minutes
    start, sampled, number = time.monotonic(), -5.0, 0
    while (now := time.monotonic() - start) < 60 * (end - begin):
        if now - sampled >= 5:
            sampled = now
            minute = begin + now / 60
            tally.memory.append((minute, sum(map(resident, pids))))
            if len(tally.memory) % 12 == 1:
                print(
                    f"minute {minute:.0f}: {tally.answered} answered, "
                    f"{len(tally.problems)} wrong, {tally.memory[-1][1]:.0f} MB",
                    flush=True,
                )
        kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
        task = asyncio.create_task(_one(texts if kind == "text" else client, kind, dice, tally))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        number += 1
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
    await asyncio.gather(*waiting)


async def _probe(address: str, tally: Tally) -> None:
    """Ask for the server's health every second, on a connection of its own."""
    import httpx

    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        while True:
            start = time.perf_counter()
            try:
                answer = await client.get("/api/health")
                if answer.status_code != 200:
                    tally.problems.append(f"health: {answer.status_code}")
            except httpx.HTTPError as error:
                tally.problems.append(f"health: {error!r}")
            tally.health.append(time.perf_counter() - start)
            await asyncio.sleep(1)


async def _one(client: Any, kind: str, dice: random.Random, tally: Tally) -> None:
    request = _request(client, kind, dice)
    start = time.perf_counter()
    try:
        answer = await client.send(request)
    except Exception as error:  # every failure counts, whatever its kind
        tally.problems.append(f"{kind}: {error!r}")
        return
    tally.seconds[kind].append(time.perf_counter() - start)
    if answer.status_code == BUSY:
        tally.busy += 1
    elif answer.status_code not in {"refused": (400,), "crossed": (200, 400)}.get(kind, (200,)):
        tally.problems.append(f"{kind}: {answer.status_code} {answer.text[:200]}")
    elif kind == "search" and len(answer.json()["results"]) != 20:
        tally.problems.append(f"search gave {len(answer.json()['results'])} rows")
    elif kind == "image" and not _is_jpeg(answer):
        tally.problems.append(f"image gave {len(answer.content)} bytes that are no JPEG")
    elif kind in ("upload", "text") and len(answer.json()["probabilities"]) != 1:
        tally.problems.append(f"{kind} gave another number of rows")


def _is_jpeg(answer: Any) -> bool:
    whole = len(answer.content) == int(answer.headers["content-length"])
    return whole and answer.content[:2] == b"\xff\xd8" and answer.content[-2:] == b"\xff\xd9"


def _request(client: Any, kind: str, dice: random.Random) -> Any:
    if kind == "upload":
        body = picture(4000 if dice.random() < 0.02 else dice.choice((8, 16, 64, 256)))
        headers = {"content-type": "application/octet-stream"}
        return client.build_request("POST", "/api/predict/image", content=body, headers=headers)
    if kind == "text":
        return client.build_request("POST", "/api/predict/text", json={"texts": [_text(dice)]})
    label = f"l{dice.randrange(LABELS)}"
    query = {"q": _query(dice), "top": 20}
    path, parameters = {
        "search": ("/api/search", query),
        "crossed": ("/api/search", {"q": _crossed(dice), "top": 20}),
        "image": ("/image", {"id": f"row{dice.randrange(IMAGES):08d}"}),
        "labels": ("/api/labels", {"prefix": str(dice.randrange(20))}),
        "sets": ("/api/sets", {"average_size": dice.randrange(1, 400) / 20}),
        "label": ("/api/label", {"name": label}),
        "page": ("/", query) if dice.random() < 0.7 else ("/label", {"name": label}),
        "refused": ("/api/search", {"q": f"+nothing{dice.randrange(10**9)}"}),
    }[kind]
    return client.build_request("GET", path, params=parameters)


@cache
def picture(side: int) -> bytes:
    """Return a grey PNG; of 4,000 × 4,000 pixels it is 16 kB."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (side, side), 128).save(file, "PNG")
    return file.getvalue()


def _crossed(dice: random.Random) -> str:
    """Return pairs of labels joined by or: half of them at once decide little."""
    pairs = dice.randint(2, LABELS // 2)
    order = dice.sample(range(LABELS), 2 * pairs)
    return " | ".join(f"(l{order[i]} & l{order[i + pairs]})" for i in range(pairs))


def _query(dice: random.Random) -> str:
    chosen = dice.sample(range(LABELS), dice.randint(1, 5))
    if len(chosen) == 3 and dice.random() < 0.5:
        return "(l{} | l{}) & !l{}".format(*chosen)
    signs = ["+", *(dice.choice("+-") for _ in chosen[1:])]
    return " ".join(f"{sign}l{label}" for sign, label in zip(signs, chosen, strict=True))


def resident(pid: int) -> float:
    """MB of memory a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def slope(samples: list[tuple[float, float]]) -> float:
    """MB an hour, by least squares."""
    minutes, size = np.array(samples).T
    return float(60 * np.polyfit(minutes, size, 1)[0]) if len(samples) > 2 else float("nan")


def _summary(
    tally: Tally, minutes: float, rate: float, rows: int, warm_up: float
) -> dict[str, Any]:
    after = [sample for sample in tally.memory if sample[0] >= warm_up]
    half = [sample for sample in after if sample[0] >= (warm_up + minutes) / 2]
    latencies = {
        kind: {"requests": len(seconds), **_percentiles(seconds)}
        for kind, seconds in tally.seconds.items()
    }
    return {
        "minutes": minutes,
        "asked_a_second": rate,
        "answered_a_second": round(tally.answered / (60 * minutes), 2),
        "rows": rows,
        "answered": tally.answered,
        "busy": tally.busy,
        "health": {"asked": len(tally.health), **_percentiles(tally.health)},
        "wrong": len(tally.problems),
        "milliseconds": latencies,
        "memory_mb": {
            "at_rest_after_warm_up": round(tally.at_rest[0]),
            "at_rest_at_the_end": round(tally.at_rest[-1]),
            "after_warm_up": round(after[0][1]),
            "end": round(after[-1][1]),
            "least_after_warm_up": round(min(size for _, size in after)),
            "most_after_warm_up": round(max(size for _, size in after)),
            "slope_an_hour": round(slope(after), 1),
            "slope_an_hour_second_half": round(slope(half), 1),
        },
    }


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    found = np.percentile(seconds, [50, 99, 100]) * 1e3
    return {name: round(float(v), 1) for name, v in zip(("50%", "99%", "most"), found, strict=True)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=20, help="requests a second")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--warm-up", type=float, default=5, help="minutes not judged for memory")
    raise SystemExit(main(**vars(parser.parse_args())))
