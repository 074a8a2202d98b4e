"""Image files, as data and as uploads."""

from __future__ import annotations

import io
from collections.abc import Iterable

from fuzz.targets import FolderAttack

MODULES = ("credibly.untrusted.images",)


class Target(FolderAttack):
    """The one place that opens images: every format, as a PIL image and as pixels."""

    def seeds(self) -> Iterable[bytes]:
        from PIL import Image

        from credibly.untrusted.images import FORMATS

        image = Image.linear_gradient("L").resize((24, 16)).convert("RGB")
        for name in FORMATS:
            file = io.BytesIO()
            image.save(file, name)
            yield file.getvalue()
        for options in ({"progressive": True}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}):
            file = io.BytesIO()
            image.save(file, "JPEG", **options)
            yield file.getvalue()
        yield b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n"

    def read(self, data: bytes) -> None:
        from credibly.untrusted.images import decode_image, decode_pixels

        decode_image(io.BytesIO(data), "some.jpg", (8, 8), max_pixels=10**6).close()
        if len(data) % 2:
            decode_pixels(self.put("some.jpg", data), "some.jpg")
