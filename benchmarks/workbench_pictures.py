"""Make the pictures of docs/tutorials/wrong-labels.md from the demo, in a real browser.

    make demo
    python -m benchmarks.workbench_pictures demo docs/img

Plants mistakes into the predictions of the demo as the walk-through does, serves them, decides ten
entries, and photographs each step. Needs playwright, a Chromium and pillow (the extra ``dev``).
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import credibly as cr
from credibly.app.server import create_app

WIDTH, HEIGHT = 1100, 740
MOST_BYTES = 60_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


Truth = dict[tuple[str, str], str]


def plant(predictions: Path, out: Path) -> Truth:
    """Write predictions with 2 % of the truth turned around; return what is right."""
    found = cr.Predictions.read(predictions)
    targets = np.array(found.targets, dtype=float)
    right = {
        (str(id), label): "present" if targets[row, t] else "absent"
        for row, id in enumerate(found.ids)
        for t, label in enumerate(found.labels)
    }
    planted = np.random.default_rng(0).random(targets.shape) < 0.02
    targets[planted] = 1 - targets[planted]
    cr.Predictions.from_arrays(
        probabilities=found.probabilities, targets=targets, labels=found.labels, ids=found.ids
    ).write(out)
    return right


def serve(app: Any) -> tuple[Any, str]:
    """Start a server in a thread; return it with its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return server, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


def save(page: Any, path: Path) -> None:
    """Write what the browser shows as WebP of at most ``MOST_BYTES``."""
    from PIL import Image

    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    for quality in (80, 60, 40):
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=quality, method=6)
        if len(buffer.getvalue()) <= MOST_BYTES:
            break
    path.write_bytes(buffer.getvalue())
    print(path, len(buffer.getvalue()), "bytes")


def photograph(browser: Any, address: str, out: Path, right: Truth) -> None:
    """Walk through the steps of the walk-through, and decide ten entries as they are."""
    page = browser.new_page(base_url=address, viewport={"width": WIDTH, "height": HEIGHT})
    page.goto("/")
    page.wait_for_selector("#verdict")
    save(page, out / "workbench-home.webp")
    page.goto("/review?who=Ana&low=0.5")
    tiles = page.locator(".tile")
    tiles.first.locator("a.open").focus()
    for place in range(10):
        id, label = (tiles.nth(place).get_attribute(f"data-{name}") for name in ("id", "label"))
        with page.expect_response("**/api/reviews**"):
            page.keyboard.press(right[id, label][0])
    page.evaluate("scrollTo(0, 0)")
    save(page, out / "workbench-review.webp")
    tiles.nth(1).locator("a.open").click()
    page.wait_for_selector("#row-labels")
    save(page, out / "workbench-row.webp")
    page.goto("/review/effect")
    save(page, out / "workbench-effect.webp")


def main(arguments: list[str]) -> int:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `make demo` wrote")
    parser.add_argument("out", type=Path, help="folder of the pictures")
    given = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        demo, out = given.demo.resolve(), given.out.resolve()
        os.chdir(folder)  # commands on the pages name files as the reader's do
        right = plant(demo / "runs" / "bce-seed0" / "predictions.parquet", Path("noisy.parquet"))
        images, log = demo / "images", "corrections.jsonl"
        app = create_app(["noisy.parquet"], images=images, annotate=log)
        server, address = serve(app)
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        photograph(browser, address, out, right)
        browser.close()
        server.should_exit = True
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
