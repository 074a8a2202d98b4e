"""Images are opened in one place, by named formats, and refused before they cost anything."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hostile_images import ALLOWED, REFUSED, SOS, encoded, postscript, repeated_scans
from PIL import Image

import credibly as cr
from credibly.cli import main

SOURCE = Path(cr.__file__).parent


@pytest.fixture
def decoded(tmp_path):
    """Return a function that decodes an image as training does."""

    def decode(content: bytes) -> np.ndarray:
        folder = tmp_path / "one" / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x.png").write_bytes(content)
        return cr.data.load(f"imagefolder:{folder.parent}", test=0.0, calibration=0).image(0)

    return decode


def image_folder(folder: Path, content: bytes) -> Path:
    """Write a folder of two classes whose first image is ``content``."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(4):
            (folder / label / f"{number}.png").write_bytes(encoded("PNG"))
    (folder / "cat" / "0.png").write_bytes(content)
    return folder


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """Return a file that exists once a program called ``gs`` was started."""
    called = tmp_path / "called"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{called}'\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return called


def test_one_module_opens_images():
    users = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"Image\.open\(|images\.open\(|\.decode_jpeg\(", path.read_text("utf-8"))
    ]
    assert users == ["untrusted/images.py"]


@pytest.mark.parametrize("case", REFUSED)
def test_what_must_not_be_decoded_is_refused(case, ghostscript, decoded):
    content, words = REFUSED[case]
    with pytest.raises(cr.InputError, match=re.escape(words)):
        decoded(content)
    assert not ghostscript.exists()


@pytest.mark.parametrize("case", ALLOWED)
def test_other_images_decode(case, decoded):
    assert decoded(ALLOWED[case]).shape in {(16, 16, 3), (64, 64, 3)}


def test_scans_are_counted_in_the_image_alone(decoded):
    """A thumbnail, a comment, and what a camera appends after the image are no scans of it."""
    plain = encoded("JPEG")
    comment = b"\xff\xfe" + (2 + 2 * 300).to_bytes(2, "big") + SOS * 300
    full = plain[:2] + comment + plain[2:] + SOS * 300
    np.testing.assert_array_equal(decoded(full), decoded(plain))


def test_padding_does_not_hide_scans(decoded):
    content = repeated_scans(1000).replace(SOS, b"\xff" + SOS)
    with pytest.raises(cr.InputError, match="at most 100 scans"):
        decoded(content)


@pytest.mark.parametrize("case", REFUSED)
def test_training_on_such_an_image_is_refused_by_its_name(case, tmp_path, ghostscript):
    content, words = REFUSED[case]
    folder = image_folder(tmp_path / "images", content)
    data = cr.data.load(f"imagefolder:{folder}", test=0.0, calibration=0)
    with pytest.raises(cr.InputError, match=rf"0\.png.*{re.escape(words)}"):
        [data.image(row) for row in range(len(data))]
    kept = cr.data.load(f"imagefolder:{folder}", test=0.0, calibration=0, skip_bad_images=True)
    assert len(kept) == 7
    assert not ghostscript.exists()


def test_a_report_leaves_such_images_out(tmp_path, ghostscript):
    folder = tmp_path / "images"
    folder.mkdir()
    contents = {"scans": repeated_scans(1000), "program": postscript(), "good": encoded("PNG")}
    for name, content in contents.items():
        (folder / f"{name}.png").write_bytes(content)
    predictions = cr.Predictions.from_arrays(
        probabilities=np.full((3, 1), 0.9),
        targets=np.zeros((3, 1)),
        labels=["cat"],
        ids=list(contents),
    )
    predictions.write(tmp_path / "p.parquet")
    out = tmp_path / "report.html"
    command = ["report", tmp_path / "p.parquet", "--images", 16, "--image-folder", folder]
    assert main([str(each) for each in (*command, "--out", out)]) == 0
    shown = re.findall(r'src="data:image/', out.read_text("utf-8"))
    assert len(shown) == 1
    assert not ghostscript.exists()


def test_large_claims_are_refused_without_memory(decoded):
    stream = io.BytesIO()
    Image.new("1", (9000, 9000)).save(stream, "TIFF", compression="group4")
    with pytest.raises(cr.InputError, match="at most 80,000,000 pixels"):
        decoded(stream.getvalue())
