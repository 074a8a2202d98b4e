"""Make the pictures of the web app for the documentation from the demo, in a real browser.

    make demo
    python -m benchmarks.app_pictures demo docs/img

Plants mistakes into the predictions of the demo as docs/tutorials/wrong-labels.md does, serves them
beside another run, photographs every page, decides ten labels and photographs what came of it, and
the report of the demo. Every page on a phone, in the dark and on paper comes on one sheet each.
Needs playwright, a Chromium and pillow (the extra ``dev``).
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
from collections.abc import Iterator
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


def save(image: Any, path: Path, limit: int = MOST_BYTES) -> None:
    """Write an image as WebP of at most ``limit`` bytes."""
    for quality in (80, 60, 40, 25):
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", quality=quality, method=6)
        if len(buffer.getvalue()) <= limit:
            break
    path.write_bytes(buffer.getvalue())
    print(path, len(buffer.getvalue()), "bytes")


PAGES = {
    "home": "/",
    "explore": "/explore?q=%2B3+-8",
    "labels": "/labels",
    "pairs": "/pairs",
    "label": "/label?name=8",
    "decide": "/decide?threshold=0.4",
    "compare": "/compare",
    "import": "/import",
    "docs": "/docs",
}
LOOKS: dict[str, dict[str, Any]] = {
    "": {},
    "phone": {"viewport": {"width": 390, "height": 800}},
    "dark": {"color_scheme": "dark"},
    "print": {"viewport": {"width": 750, "height": 1060}},
}


def photograph(
    browser: Any, address: str, look: str, right: Truth, image: Path, report: Path
) -> Iterator[tuple[str, Any]]:
    """Yield every page as it looks; in the first look, decide ten labels as they are."""
    from PIL import Image

    usual = {"base_url": address, "viewport": {"width": WIDTH, "height": HEIGHT}}
    page = browser.new_page(**{**usual, **LOOKS[look]})

    def taken() -> Any:
        page.evaluate("scrollTo(0, 0)")
        page.emulate_media(media="print" if look == "print" else "screen")
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        page.emulate_media(media="screen")
        return taken

    for name, path in PAGES.items():
        page.goto(path)
        page.wait_for_selector("main h1", state="attached")
        while page.locator("[data-wait], #live > [role=status]").count():
            page.wait_for_timeout(500)
            page.goto(path)
        page.wait_for_load_state("networkidle")
        yield name, taken()
    page.goto("/try")
    page.set_input_files("#file", str(image))
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#result")
    yield "try", taken()
    page.goto("/review?who=Ana")
    for _ in range(0 if look else 10):
        tile = page.locator(".tile.current")
        id, label = (tile.get_attribute(f"data-{name}") for name in ("id", "label"))
        with page.expect_response("**/api/reviews**"):
            page.keyboard.press(right[id, label][0].replace("p", "y").replace("a", "n"))
        page.wait_for_timeout(300)
    yield "review", taken()
    page.goto("/row?" + urlencode({"id": page.locator(".tile.current").get_attribute("data-id")}))
    page.wait_for_selector("#row-labels")
    yield "row", taken()
    page.goto("/review/effect")
    yield "effect", taken()
    page.goto(report.as_uri())
    yield "report", taken()


def sheet(images: list[Any]) -> Any:
    """Return images side by side in rows, small."""
    from PIL import Image

    across, width = (3, 436) if images[0].width > images[0].height else (5, 260)
    height = width * images[0].height // images[0].width
    made = Image.new(
        "RGB", (across * (width + 8), -(-len(images) // across) * (height + 8)), "gray"
    )
    for place, each in enumerate(images):
        where = place % across * (width + 8) + 4, place // across * (height + 8) + 4
        made.paste(each.resize((width, height), Image.Resampling.LANCZOS), where)
    return made


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
        other = demo / "runs" / "asl-seed0" / "predictions.parquet"
        shutil.copy(other, "asl.parquet")
        run = demo / "runs" / "bce-seed0"
        app = create_app(["noisy.parquet", "asl.parquet"], images=images, annotate=log, run=run)
        server, address = serve(app)
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        image = sorted(images.glob("*.png"))[0]
        for look in LOOKS:
            pictures = dict(photograph(browser, address, look, right, image, demo / "report.html"))
            if look:
                save(sheet(list(pictures.values())), out / f"app-in-{look}.webp", 2 * MOST_BYTES)
            for name, picture in pictures.items() if not look else ():
                save(picture, out / f"app-{name}.webp")
        browser.close()
        server.should_exit = True
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
