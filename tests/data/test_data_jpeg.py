"""JPEGs decode to the same pixels with and without simplejpeg; torch scales them as PIL does."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import credibly as cr
from credibly import InputError

ORIENTATION = 0x0112


def encoded(mode="RGB", orientation=None, **options):
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 255, (9, 13, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((131, 97), Image.Resampling.BICUBIC).convert(mode)
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    stream = io.BytesIO()
    image.save(stream, "JPEG", exif=exif, **options)
    return stream.getvalue()


CASES = {
    "colour": {},
    "gray": {"mode": "L"},
    "four inks": {"mode": "CMYK"},
    "turned": {"orientation": 6},
    "progressive": {"progressive": True},
    "all colours kept": {"subsampling": 0, "quality": 97},
}


DECODER = "credibly.untrusted.images._fast_jpeg"


@pytest.fixture
def pixels(tmp_path):
    """Return a function that decodes an image as training does."""

    def decode(raw, size=None):
        folder = tmp_path / "x"
        folder.mkdir(exist_ok=True)
        (folder / "x.jpg").write_bytes(raw)
        rows = cr.data.load(f"imagefolder:{tmp_path}", test=0.0, calibration=0)
        return rows.images.pixels(0, size)

    return decode


@pytest.fixture
def without(monkeypatch, pixels):
    def decode(raw, size):
        with monkeypatch.context() as patch:
            patch.setattr(DECODER, lambda: None)
            return pixels(raw, size)

    return decode


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [None, (60, 40), (20, 20)])
def test_pixels_are_those_of_pil(case, size, pixels, without):
    pytest.importorskip("simplejpeg")
    raw = encoded(**CASES[case])
    np.testing.assert_array_equal(pixels(raw, size), without(raw, size))


def test_what_the_fast_decoder_refuses_is_left_to_pil(monkeypatch, pixels, without):
    def refuse(*_, **__):
        raise ValueError("a warning")

    monkeypatch.setattr(DECODER, lambda: refuse)
    raw = encoded()
    np.testing.assert_array_equal(pixels(raw, None), without(raw, None))


def test_a_damaged_file_is_refused_by_name(pixels):
    with pytest.raises(InputError, match=r"x.jpg does not decode"):
        pixels(encoded()[:300], None)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(20, 31), (97, 131), (1, 1), (150, 140)], ids=str)
def test_scaling_is_that_of_pil(channels, size, pixels):
    image = pixels(encoded())[..., :channels]
    picture = Image.fromarray(image[..., 0] if channels == 1 else image)
    expected = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    rows = cr.data.Data(["a"], np.ones((1, 1)), images=image[None])
    found = rows.torch_dataset(False, image_size=size).batch([0])[0][0] * 255
    found = found.permute(1, 2, 0).round().numpy()
    assert found.shape == (*size, channels)
    difference = np.abs(np.asarray(expected).reshape(found.shape).astype(int) - found)
    assert difference.max() <= 1
    assert difference.mean() < 0.01
