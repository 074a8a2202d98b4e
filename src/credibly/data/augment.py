"""Changes of training images that keep their labels: each a function of (seed, epoch, row)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import checks
from credibly.types import Array

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_CUTOUT = 0.5
"""A square of half the side hides a quarter of the image: more could hide a label's only object."""

UNIFORMS = 45
"""Random numbers per row: 6 for crop, shift and flip, 6 for operations, 3 for cutout, 3 to mix, 4
for colours, 3 for lighting, 20 for ten trials of a crop."""

# Eigenvectors of the colours of ImageNet's training pixels, in columns, times their eigenvalues
# (Krizhevsky et al., 2012, section 4.1).
_LIGHTING = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
) * np.array([0.2175, 0.0188, 0.0045])


@dataclass(frozen=True)
class Augment:
    """What training does to images beyond the crop, shift or flip of the data set.

    Args:
        operations: strength in [0, 1] of two random operations per image (RandAugment: colour,
            contrast, sharpness, small rotations, shears and shifts); 0 is none.
        cutout: side of a gray square at a random place, as a share of the image's side.
        mixup: α of Beta(α, α), from which each row draws a share; 0 does not mix.
        color_jitter: brightness, contrast and saturation times 1 ± this, in a random order.
        lighting: standard deviation of noise along the principal components of ImageNet's colours.

    Example:
        >>> Augment(cutout=0.8)
        Traceback (most recent call last):
        ...
        credibly.checks.InputError: `cutout` must lie in [0, 0.5]; got 0.8.
    """

    operations: float = 0.0
    cutout: float = 0.0
    mixup: float = 0.0
    color_jitter: float = 0.0
    lighting: float = 0.0

    def __post_init__(self) -> None:
        checks.fraction("operations", self.operations)
        if not 0 <= self.cutout <= MOST_CUTOUT:
            raise checks.InputError(f"`cutout` must lie in [0, {MOST_CUTOUT}]; got {self.cutout}.")
        checks.at_least("mixup", self.mixup, 0)
        checks.fraction("color_jitter", self.color_jitter)
        checks.at_least("lighting", self.lighting, 0)

    @property
    def changes_pixels(self) -> bool:
        """Whether single images change, apart from mixing."""
        return max(self.operations, self.cutout, self.color_jitter) > 0


def changed(images: Array, augment: Augment, chance: Array) -> Array:
    """Return uint8 images (n, h, w, c) after operations and cutout.

    Args:
        images: the images.
        augment: what to do.
        chance: (n, ``UNIFORMS``) uniform numbers.
    """
    if augment.color_jitter:
        images = np.stack(
            [
                _jittered(image, augment.color_jitter, u)
                for image, u in zip(images, chance[:, 18:22], strict=True)
            ]
        )
    if augment.operations:
        images = np.stack(
            [
                _operated(image, augment.operations, u)
                for image, u in zip(images, chance[:, 6:12], strict=True)
            ]
        )
    if augment.cutout:
        images = np.stack(
            [
                _cut_out(image, augment.cutout, u)
                for image, u in zip(images, chance[:, 12:15], strict=True)
            ]
        )
    return images


def lighting(deviation: float, chance: Array) -> Array:
    """Return what to add to the red, green and blue of each row, (rows, 3), from three uniforms."""
    from scipy.special import ndtri

    return (deviation * ndtri(chance) @ _LIGHTING.T).astype(np.float32)


def shares(alpha: float, chance: Array) -> Array:
    """Return each row's own share in its mixture, at least one half.

    The quantile of Beta(α, α) at a uniform number, or one minus it, whichever is larger: the row
    whose place in the batch it is stays the main one.
    """
    from scipy.stats import beta

    drawn = beta.ppf(chance, alpha, alpha)
    return np.maximum(drawn, 1 - drawn).astype(np.float32)


def mixed_targets(own: Array, other: Array, share: Array) -> Array:
    """Return the soft targets of mixtures; unknown where either image's label is unknown."""
    soft = share[:, None] * own + (1 - share[:, None]) * other
    return np.where((own < 0) | (other < 0), np.float32(-1), soft).astype(np.float32)


def _jittered(image: Array, strength: float, chance: Array) -> Array:
    """Brightness, contrast and saturation, each times a factor in 1 ± ``strength``."""
    from PIL import Image, ImageEnhance

    gray = image.shape[2] == 1
    picture = Image.fromarray(image[..., 0] if gray else image)
    order = ORDERS[int(chance[3] * len(ORDERS))]
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for which in order:
        if gray and which == 2:  # gray has no saturation
            continue
        picture = enhancers[which](picture).enhance(1 + strength * (2 * chance[which] - 1))
    pixels = np.asarray(picture)
    return pixels[..., None] if gray else pixels


ORDERS = tuple(itertools.permutations(range(3)))


# Operations ----------------------------------------------------------------------------------


def _operated(image: Array, strength: float, chance: Array) -> Array:
    """Two operations, drawn with replacement; each of strength up to ``strength``, either way."""
    from PIL import Image

    gray = image.shape[2] == 1
    picture = Image.fromarray(image[..., 0] if gray else image)
    for which, how_much, sign in (chance[:3], chance[3:6]):
        operation = OPERATIONS[int(which * len(OPERATIONS))]
        picture = operation(picture, strength * how_much * (1 if sign < 0.5 else -1))
    pixels = np.asarray(picture)
    return pixels[..., None] if gray else pixels


def _cut_out(image: Array, share: float, chance: Array) -> Array:
    """A square filled with the image's mean colour; it may reach over the edge."""
    height, width = image.shape[:2]
    tall, wide = round(share * height), round(share * width)
    top, left = int(chance[0] * height) - tall // 2, int(chance[1] * width) - wide // 2
    cut = image.copy()
    rows, columns = slice(max(top, 0), max(top + tall, 0)), slice(max(left, 0), max(left + wide, 0))
    cut[rows, columns] = image.mean(axis=(0, 1)).round().astype(np.uint8)
    return cut


Operation = Callable[["Image", float], "Image"]


def _enhanced(name: str) -> Operation:
    """Colour, contrast, brightness or sharpness times 1 ± 0.9."""

    def operation(picture: Image, amount: float) -> Image:
        from PIL import ImageEnhance

        enhancer: Any = getattr(ImageEnhance, name)
        return enhancer(picture).enhance(1 + 0.9 * amount)

    return operation


def _moved(matrix: Callable[[float, float, float], tuple[float, ...]]) -> Operation:
    """An affine map of places around the image's middle; what it uncovers is gray."""

    def operation(picture: Image, amount: float) -> Image:
        from PIL.Image import Resampling, Transform

        width, height = picture.size
        a, b, right, c, d, down = matrix(amount, width, height)
        x, y = (width - 1) / 2, (height - 1) / 2
        whole = (a, b, x - a * x - b * y + right, c, d, y - c * x - d * y + down)
        fill = 128 if picture.mode == "L" else (128, 128, 128)
        return picture.transform(
            picture.size, Transform.AFFINE, whole, Resampling.BILINEAR, fillcolor=fill
        )

    return operation


def _rotation(amount: float, width: float, height: float) -> tuple[float, ...]:
    angle = amount * np.pi / 6
    cos, sin = float(np.cos(angle)), float(np.sin(angle))
    return (cos, sin, 0.0, -sin, cos, 0.0)


def _equalized(picture: Image, amount: float) -> Image:
    from PIL import Image, ImageOps

    return Image.blend(picture, ImageOps.equalize(picture), abs(amount))


def _autocontrasted(picture: Image, amount: float) -> Image:
    from PIL import Image, ImageOps

    return Image.blend(picture, ImageOps.autocontrast(picture), abs(amount))


def _posterized(picture: Image, amount: float) -> Image:
    from PIL import ImageOps

    return ImageOps.posterize(picture, 8 - round(4 * abs(amount)))


OPERATIONS: tuple[Operation, ...] = (
    *map(_enhanced, ("Color", "Contrast", "Brightness", "Sharpness")),
    _equalized,
    _autocontrasted,
    _posterized,
    _moved(_rotation),
    _moved(lambda amount, width, height: (1, 0.3 * amount, 0, 0, 1, 0)),  # shear
    _moved(lambda amount, width, height: (1, 0, 0, 0.3 * amount, 1, 0)),
    _moved(lambda amount, width, height: (1, 0, 0.3 * amount * width, 0, 1, 0)),  # shift
    _moved(lambda amount, width, height: (1, 0, 0, 0, 1, 0.3 * amount * height)),
)
"""Cubuk et al. (2020), RandAugment, without those that invert colours: a photographic negative is
not an image anyone labelled. Strength 0 changes nothing."""
