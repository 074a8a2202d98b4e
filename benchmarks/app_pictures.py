"""Make the pictures of the web app for the documentation from the demo, in a real browser.

    make demo
    python -m benchmarks.app_pictures demo docs/img

Plants mistakes into the predictions of the demo as docs/tutorials/wrong-labels.md does, serves them
beside another run, photographs every page, decides ten labels and photographs what came of it.
``--all`` also takes the pages on a phone and in the dark, to look at. Needs playwright, a
Chromium and pillow (the extra ``dev``).
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
from urllib.parse import urlencode

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


PAGES = {
    "home": "/",
    "explore": "/explore?q=%2B3+-8",
    "labels": "/labels",
    "label": "/label?name=8",
    "decide": "/decide?threshold=0.4",
    "compare": "/compare",
    "import": "/import",
}
LOOKS: dict[str, dict[str, Any]] = {
    "": {},
    "-phone": {"viewport": {"width": 390, "height": 800}},
    "-dark": {"color_scheme": "dark"},
}


def photograph(
    browser: Any, address: str, out: Path, right: Truth, image: Path, looks: list[str]
) -> None:
    """Take every page, decide ten labels as they are, and take what follows from that."""
    for look in looks:
        usual = {"base_url": address, "viewport": {"width": WIDTH, "height": HEIGHT}}
        page = browser.new_page(**{**usual, **LOOKS[look]})
        for name, path in PAGES.items():
            page.goto(path)
            page.wait_for_selector("main h1", state="attached")
            while page.locator("[data-wait], #live > [role=status]").count():
                page.wait_for_timeout(500)
                page.goto(path)
            page.wait_for_load_state("networkidle")
            save(page, out / f"app-{name}{look}.webp")
    page = browser.new_page(base_url=address, viewport={"width": WIDTH, "height": HEIGHT})
    page.goto("/try")
    page.set_input_files("#file", str(image))
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#result")
    save(page, out / "app-try.webp")
    page.goto("/review?who=Ana")
    for _ in range(10):
        tile = page.locator(".tile.current")
        id, label = (tile.get_attribute(f"data-{name}") for name in ("id", "label"))
        with page.expect_response("**/api/reviews**"):
            page.keyboard.press(right[id, label][0].replace("p", "y").replace("a", "n"))
        page.wait_for_timeout(300)
    page.evaluate("scrollTo(0, 0)")
    save(page, out / "app-review.webp")
    page.goto("/row?" + urlencode({"id": id}))
    page.wait_for_selector("#row-labels")
    save(page, out / "app-row.webp")
    page.goto("/review/effect")
    save(page, out / "app-effect.webp")


def main(arguments: list[str]) -> int:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="folder that `make demo` wrote")
    parser.add_argument("out", type=Path, help="folder of the pictures")
    parser.add_argument("--all", action="store_true", help="also on a phone and in the dark")
    given = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        demo, out = given.demo.resolve(), given.out.resolve()
        os.chdir(folder)  # commands on the pages name files as the reader's do
        right = plant(demo / "runs" / "bce-seed0" / "predictions.parquet", Path("noisy.parquet"))
        images, log = demo / "images", "corrections.jsonl"
        other = demo / "runs" / "asl-seed0" / "predictions.parquet"
        shutil.copy(other, "asl.parquet")
        run = demo / "runs" / "bce-seed0"
        app = create_app(["noisy.parquet", "asl.parquet"], images=images, annotate=log, run=run)
        server, address = serve(app)
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        image = sorted(images.glob("*.png"))[0]
        photograph(browser, address, out, right, image, list(LOOKS) if given.all else [""])
        browser.close()
        server.should_exit = True
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
