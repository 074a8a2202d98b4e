"""A server with known predictions, in this process, on a free port."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from serve_browser import listening, running
from serve_labels import LABELS

from credibly import Predictions
from credibly.app.server import create_app
from credibly.calibrate import Affine


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="session", autouse=True)
def patience():
    """Wait for numbers as long as it takes: a loaded machine may have to compile kernels first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("credibly.app.server.background.WAIT", 300.0)
        yield


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Two predictions files (one calibrated, with its scores) and a folder of images.

    One label in twenty is wrong, and the model is sure enough to tell.
    """
    folder = tmp_path_factory.mktemp("shelf")
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 6, (400, len(LABELS))).astype(np.float32)
    right = rng.random(odds.shape) < sigmoid(odds)
    targets = (right ^ (rng.random(odds.shape) < 0.05)).astype(np.int8)
    targets[0], targets[1] = 0, -1
    scores = 0.5 * odds + 1
    calibrator = Affine().fit(scores, targets)
    common = {"targets": targets, "labels": LABELS, "ids": [f"img/{i:03d}" for i in range(400)]}
    Predictions.from_arrays(
        probabilities=sigmoid(calibrator.transform(scores)),
        scores=scores,
        metadata={"loss": "bce", "calibrator": calibrator.state()},
        **common,
    ).write(folder / "ours.parquet")
    Predictions.from_arrays(probabilities=sigmoid(scores), **common).write(
        folder / "theirs.parquet"
    )
    images = folder / "images" / "img"
    images.mkdir(parents=True)
    for i in range(0, 400, 2):
        Image.new("RGB", (8, 6), (i % 256, 80, 160)).save(images / f"{i:03d}.png")
    (folder / "secret.png").write_bytes((images / "000.png").read_bytes())
    (images / "out.png").symlink_to(folder / "secret.png")
    (images / "page.html").write_text("<script>alert(1)</script>")
    return folder


@pytest.fixture(scope="session")
def app(shelf):
    return create_app(
        [shelf / "ours.parquet", shelf / "theirs.parquet"],
        images=shelf / "images",
        annotate=shelf / "corrections.jsonl",
    )


@pytest.fixture(scope="session")
def address(app):
    """Where the server listens."""
    with listening(app) as where:
        yield where


@pytest.fixture(scope="module")
def chromium():
    with running() as browser:
        yield browser


@pytest.fixture
def open_page(chromium, address):
    """Open fresh pages; anything their consoles complain about fails the test."""
    contexts, complaints = [], []

    def open_one(**options):
        settings = {"viewport": {"width": 1100, "height": 850}, "base_url": address, **options}
        context = chromium.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(90_000)  # a loaded machine takes long to begin
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield open_one
    for context in contexts:
        context.close()
    # Chromium itself reports rows without an image (404), queries with a mistake (400) and files
    # that are too large (413).
    assert [text for text in complaints if "status of 4" not in text] == []


@pytest.fixture
def page(open_page):
    """A fresh page."""
    return open_page()
