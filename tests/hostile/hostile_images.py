"""Image files that cost far more to decode than their size tells, or that are programs."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SOS = b"\xff\xda"
EOI = b"\xff\xd9"


def repeated_scans(scans: int, side: int = 64) -> bytes:
    """Return a progressive JPEG whose last scan comes ``scans`` times more."""
    stream = io.BytesIO()
    Image.new("L", (side, side), 128).save(stream, "JPEG", progressive=True, quality=50)
    whole = stream.getvalue()
    start, end = whole.rindex(SOS), whole.rindex(EOI)
    return whole[:end] + whole[start:end] * scans + whole[end:]


def postscript() -> bytes:
    """Return a PostScript program of one drawing, which Pillow would hand to Ghostscript."""
    return (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\n"
        b"0 0 16 16 rectfill\nshowpage\n%%EOF\n"
    )


def encoded(name: str) -> bytes:
    """Return a small image in a format of Pillow."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, name)
    return stream.getvalue()


REFUSED = {
    "repeated scans": (repeated_scans(1000), "at most 100 scans; this one has 1,0"),
    "PostScript": (postscript(), "JPEG, PNG, GIF, WEBP, BMP, TIFF or PPM"),
    "ICO": (encoded("ICO"), "JPEG, PNG, GIF, WEBP, BMP, TIFF or PPM"),
    "ICNS": (encoded("ICNS"), "JPEG, PNG, GIF, WEBP, BMP, TIFF or PPM"),
    "PDF": (encoded("PDF"), "JPEG, PNG, GIF, WEBP, BMP, TIFF or PPM"),
    "TGA": (encoded("TGA"), "JPEG, PNG, GIF, WEBP, BMP, TIFF or PPM"),
}
ALLOWED = {name: encoded(name) for name in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")} | {
    "progressive": repeated_scans(0),
    "some scans more": repeated_scans(50),
}
