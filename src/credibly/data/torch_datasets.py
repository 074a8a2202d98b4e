"""Rows as tensors. Augmentation depends only on seed, epoch and row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from credibly.checks import InputError
from credibly.child_processes import WORKER_START, end_with_parent
from credibly.data.images import LazyImages
from credibly.data.splits import uniforms
from credibly.data.token_rows import Tensors
from credibly.targets import SparseTargets
from credibly.types import Array

if TYPE_CHECKING:
    from PIL.Image import Image

    from credibly.data.rows import Data


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
    """Augmentation of images in training, beyond the crop, shift or flip of the data set.

    Args:
        operations: strength in [0, 1] of two random operations per image (RandAugment: colour,
            contrast, sharpness, small rotations, shears and shifts); 0 disables them.
        cutout: side of a gray square at a random position, as a share of the image's side. The
            maximum is half, which hides a quarter of the image. A larger square could hide the only
            object of a label.
        mixup: α of Beta(α, α), from which the share of each row is drawn; 0 disables mixing.
        color_jitter: maximum relative change of brightness, contrast and saturation, applied in a
            random order.
        lighting: standard deviation of noise along the principal components of ImageNet's colours.
    """

    operations: float = 0.0
    cutout: float = 0.0
    mixup: float = 0.0
    color_jitter: float = 0.0
    lighting: float = 0.0

    @property
    def changes_pixels(self) -> bool:
        """Return whether single images change, apart from mixing."""
        return max(self.operations, self.cutout, self.color_jitter) > 0


def changed(images: Array, augment: Augment, chance: Array) -> Array:
    """Return uint8 images (n, h, w, c) after operations and cutout.

    Args:
        images: the images.
        augment: the augmentation.
        chance: (n, ``UNIFORMS``) uniform numbers.
    """
    from PIL import Image

    found = []
    for image, own in zip(images, chance, strict=True):
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        if augment.color_jitter:
            for which in ORDERS[int(own[21] * len(ORDERS))]:
                amount = augment.color_jitter * (2 * own[18 + which] - 1)
                picture = JITTER[which](picture, amount)
        if augment.operations:
            picture = _operated(picture, augment.operations, own[6:12])
        pixels = np.asarray(picture).reshape(image.shape)
        found.append(_cut_out(pixels, augment.cutout, own[12:15]) if augment.cutout else pixels)
    return np.stack(found)


# Operations ----------------------------------------------------------------------------------


def _operated(picture: Image, strength: float, chance: Array) -> Image:
    """Apply two operations, drawn with replacement, each of strength up to ± ``strength``."""
    for which, how_much, sign in (chance[:3], chance[3:6]):
        operation = OPERATIONS[int(which * len(OPERATIONS))]
        picture = operation(picture, strength * how_much * (1 if sign < 0.5 else -1))
    return picture


def _cut_out(image: Array, share: float, chance: Array) -> Array:
    """Fill a square with the mean colour of the image. It may reach over the edge."""
    height, width = image.shape[:2]
    tall, wide = round(share * height), round(share * width)
    top, left = int(chance[0] * height) - tall // 2, int(chance[1] * width) - wide // 2
    cut = image.copy()
    rows, columns = slice(max(top, 0), max(top + tall, 0)), slice(max(left, 0), max(left + wide, 0))
    cut[rows, columns] = image.mean(axis=(0, 1)).round().astype(np.uint8)
    return cut


Operation = Callable[["Image", float], "Image"]


def _enhanced(name: str, reach: float = 0.9) -> Operation:
    """Return the operation that multiplies a property of the image by 1 ± ``reach``."""

    def operation(picture: Image, amount: float) -> Image:
        from PIL import ImageEnhance

        enhancer: Any = getattr(ImageEnhance, name)
        return enhancer(picture).enhance(1 + reach * amount)

    return operation


def _moved(matrix: Callable[[float, float, float], tuple[float, ...]]) -> Operation:
    """Return an affine map around the centre of the image; uncovered pixels become gray."""

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


def _blended(name: str) -> Operation:
    """Return the operation that blends the image with the output of an operation of PIL."""

    def operation(picture: Image, amount: float) -> Image:
        from PIL import Image, ImageOps

        return Image.blend(picture, getattr(ImageOps, name)(picture), abs(amount))

    return operation


def _posterized(picture: Image, amount: float) -> Image:
    from PIL import ImageOps

    return ImageOps.posterize(picture, 8 - round(4 * abs(amount)))


OPERATIONS: tuple[Operation, ...] = (
    *map(_enhanced, ("Color", "Contrast", "Brightness", "Sharpness")),
    *map(_blended, ("equalize", "autocontrast")),
    _posterized,
    _moved(_rotation),
    _moved(lambda amount, width, height: (1, 0.3 * amount, 0, 0, 1, 0)),  # shear
    _moved(lambda amount, width, height: (1, 0, 0, 0.3 * amount, 1, 0)),
    _moved(lambda amount, width, height: (1, 0, 0.3 * amount * width, 0, 1, 0)),  # shift
    _moved(lambda amount, width, height: (1, 0, 0, 0, 1, 0.3 * amount * height)),
)
"""Cubuk et al. (2020), RandAugment, without those that invert colours: a photographic negative is
not an image anyone labelled. Strength 0 changes nothing."""


JITTER = [_enhanced(name, 1.0) for name in ("Brightness", "Contrast", "Color")]
ORDERS = tuple(itertools.permutations(range(len(JITTER))))


# Rows as tensors --------------------------------------------------------------------------------

Sample = tuple[Any, Tensor, int]
Batch = tuple[Any, Any, Tensor]
"""Inputs, targets and row numbers."""


class RowSource(Protocol):
    """Rows that are trained on or scored in batches, such as those of ``Data.torch_dataset``."""

    @property
    def lengths(self) -> Array | None:
        """Return the number of tokens per row, if rows of similar length should share a batch."""
        ...

    def __len__(self) -> int: ...

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that determines the augmentation."""
        ...

    def batch(self, rows: Tensor | Array | list[int]) -> Batch:
        """Return many rows at once."""
        ...


DEFAULT_SIZE = 224
"""For image files, when no size is given."""


class TorchRows(torch.utils.data.Dataset[Sample]):
    """See ``Data.torch_dataset``. Works with any number of DataLoader workers.

    ``augment`` are the arguments of ``Augment``.
    """

    def __init__(
        self,
        data: Data,
        *,
        train: bool,
        image_size: int | tuple[int, int] | None = None,
        seed: int = 0,
        eval_crop: int | None = None,
        **augment: float,
    ) -> None:
        self.data, self.train, self.seed = data, train, seed
        self.eval_crop = None if train else eval_crop
        self.augment = Augment(**augment) if train else Augment()
        self.size = _size(image_size)
        if self.eval_crop is not None and self.eval_crop < max(self.size or (DEFAULT_SIZE,)):
            raise InputError(
                f"`eval_crop` must be at least the side of the image, {image_size}; got "
                f"{self.eval_crop}."
            )
        # Shared memory, so persistent workers see the next epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        # Tensors. With very many labels, lists, which the loss accepts directly.
        self._targets: Any = data.targets
        if not isinstance(data.targets, SparseTargets):
            self._targets = torch.from_numpy(np.ascontiguousarray(data.targets))
        if data.features is not None:
            self._features = torch.from_numpy(np.ascontiguousarray(data.features))

    @property
    def lengths(self) -> Array | None:
        """Return the number of tokens per row, if rows of similar length should share a batch."""
        return None if self.data.encoded is None else self.data.encoded.lengths

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that determines the augmentation."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Sample:
        row = range(len(self))[int(row)]
        inputs, targets, _ = self.batch([row])
        if isinstance(targets, SparseTargets):
            targets = torch.from_numpy(targets.dense())
        return (inputs if isinstance(inputs, Tensors) else inputs[0]), targets[0], row

    def batch(self, rows: Tensor | Array | list[int]) -> Batch:
        """Return inputs, targets and row numbers of many rows at once."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        sparse = isinstance(self._targets, SparseTargets)
        inputs, targets = self._inputs(index), self._targets[index.numpy() if sparse else index]
        if self.augment.mixup and len(index) and self.data.texts is None:
            inputs, targets = self._mixed(inputs, targets, index)
        return inputs, targets, index

    def _mixed(self, inputs: Tensor, targets: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mix each row with another one; (seed, epoch, row) determine which one and the share."""
        from scipy.stats import beta

        chance = uniforms(self.seed, int(self._epoch), index.numpy(), UNIFORMS)[:, 15:17]
        drawn = beta.ppf(chance[:, 0], self.augment.mixup, self.augment.mixup)
        # A row is always the larger part of its own mixture.
        share = torch.from_numpy(np.maximum(drawn, 1 - drawn).astype(np.float32))
        other = torch.from_numpy((chance[:, 1] * len(self)).astype(np.int64))
        sides = share.view(-1, *[1] * (inputs.ndim - 1))
        inputs = torch.lerp(self._inputs(other), inputs, sides)
        others, share = self._targets[other], share[:, None]
        soft = share * targets + (1 - share) * others
        return inputs, soft.masked_fill((targets < 0) | (others < 0), -1)

    def _inputs(self, index: Tensor) -> Any:
        if self.data.features is not None:
            return self._features[index]
        rows = index.numpy()
        if self.data.sparse_features is not None:
            return self.data.sparse_features.batch(rows)
        if self.data.texts is not None:
            return self._texts(rows)
        style = self.data.augmentation if self.train else "none"
        chance = uniforms(self.seed, int(self._epoch), rows, UNIFORMS)
        pixels = self._pixels(rows, style, chance)
        if self.augment.changes_pixels and len(rows):
            pixels = changed(pixels, self.augment, chance)
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div_(255)
        if self.augment.lighting and inputs.shape[1] == 3:
            from scipy.special import ndtri

            noise = self.augment.lighting * ndtri(chance[:, 22:25]) @ _LIGHTING.T
            inputs += torch.from_numpy(noise.astype(np.float32))[:, :, None, None]
        return inputs

    def _texts(self, rows: Array) -> Tensors:
        if self.data.encoded is None:
            raise InputError(
                f"{self.data.source}: texts must be encoded by the model first: "
                "`data.encoded_by(model.encode)`."
            )
        inputs = self.data.encoded.batch(rows)
        if self.data.regions is not None:
            features, boxes, mask = self.data.regions.batch(rows)
            inputs["visual_feats"] = torch.from_numpy(features)
            inputs["visual_pos"] = torch.from_numpy(boxes)
            inputs["visual_attention_mask"] = torch.from_numpy(mask)
        return inputs

    def _pixels(self, rows: Array, style: str, chance: Array) -> Array:
        """Return images as uint8 (n, h, w, c), after crop or scaling, shift and flip."""
        images = self.data.images
        if isinstance(images, LazyImages):
            size = self.size or (DEFAULT_SIZE, DEFAULT_SIZE)
            # A crop contains at least 70 % of the area, so half as much again is sharp enough.
            least = self.eval_crop or 0
            wanted = (max(size[1] * 3 // 2, least), max(size[0] * 3 // 2, least))
            most = None if style == "imagenet" else wanted
            found = (images.pixels(int(row), at_least=most) for row in rows)
            framed = [self._framed(*each, size, style) for each in zip(found, chance, strict=True)]
            pixels = np.stack(framed) if framed else np.zeros((0, *size, 3), np.uint8)
        else:
            pixels = images[rows]
            size = self.size or pixels.shape[1:3]
            if style in CROPS or self.eval_crop is not None or pixels.shape[1:3] != size:
                pairs = zip(pixels, chance, strict=True)
                pixels = np.stack([self._framed(*each, size, style) for each in pairs])
        if style.startswith("shift"):
            pixels = shifted(pixels, chance)
        if style.endswith("flip") or style == "imagenet":
            flips = (chance[:, 5] < 0.5)[:, None, None, None]
            pixels = np.where(flips, pixels[:, :, ::-1], pixels)
        return pixels

    def _framed(self, pixels: Array, chance: Array, size: tuple[int, int], style: str) -> Array:
        """Return the part of an image that ``style`` or ``eval_crop`` selects, at this size."""
        if style in CROPS:
            return scaled(pixels, size, CROPS[style](pixels.shape[1::-1], chance))
        if self.eval_crop is None:
            return scaled(pixels, size)
        share = self.eval_crop / min(pixels.shape[:2])
        pixels = scaled(pixels, (int(pixels.shape[0] * share), int(pixels.shape[1] * share)))
        top, left = (round((pixels.shape[side] - size[side]) / 2) for side in (0, 1))
        return pixels[top : top + size[0], left : left + size[1]]


def shifted(images: Array, chance: Array) -> Array:
    """Shift each image by up to an eighth of its side, and fill the uncovered edge with zeros."""
    height, width = images.shape[1:3]
    reach = height // 8, width // 8
    down, right = ((chance[:, side] * (2 * reach[side] + 1)).astype(int) for side in (0, 1))
    padded = np.pad(images, ((0, 0), *((each, each) for each in reach), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (1, 2))
    return windows[np.arange(len(images)), down, right].transpose(0, 2, 3, 1)


def crop_box(size: tuple[int, int], chance: Array) -> tuple[float, float, float, float]:
    """Return a box of 70–100 % of the area with sides 4:5 to 5:4, which rarely loses an object."""
    width, height = size
    area = 0.7 + 0.3 * chance[0]
    stretch = np.exp((2 * chance[1] - 1) * np.log(5 / 4) / 2)
    w, h = min(1.0, np.sqrt(area) * stretch), min(1.0, np.sqrt(area) / stretch)
    left, top = (1 - w) * chance[2], (1 - h) * chance[3]
    return (left * width, top * height, (left + w) * width, (top + h) * height)


def imagenet_box(size: tuple[int, int], chance: Array) -> tuple[float, float, float, float]:
    """Return a box of 8–100 % of the area with sides 3:4 to 4:3, as in ImageNet training.

    The first of ten trials that fits is used. If none fits, it is the centre of the image with the
    nearest allowed ratio of sides (torchvision's ``RandomResizedCrop``).
    """
    width, height = size
    for area, ratio in chance[25:45].reshape(10, 2):
        pixels, stretch = (0.08 + 0.92 * area) * width * height, (4 / 3) ** (2 * ratio - 1)
        w, h = round((pixels * stretch) ** 0.5), round((pixels / stretch) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            left, top = int(chance[2] * (width - w + 1)), int(chance[3] * (height - h + 1))
            return (left, top, left + w, top + h)
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return (left, top, left + w, top + h)


CROPS = {"crop+flip": crop_box, "imagenet": imagenet_box}
"""Styles that cut a box out of the image."""


def scaled(
    pixels: Array, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Array:
    """Return the whole image (or ``box``, to whole pixels) at this size, as uint8.

    Nothing is cut off, so the labels remain valid. Torch gives the result of PIL in a third of the
    time; about one of 1,000 values differs from PIL's, by 1.

    Args:
        pixels: (height, width, channels), uint8.
        size: height and width.
        box: left, top, right, bottom.

    Example:
        >>> scaled(np.arange(4, dtype=np.uint8).reshape(2, 2, 1), (1, 1)).tolist()
        [[[2]]]
    """
    if box is not None:
        left, top, right, bottom = (round(edge) for edge in box)
        pixels = pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    if pixels.shape[:2] == size:
        return pixels
    # Torch warns of read-only memory, such as that of PIL's images.
    pixels = np.require(pixels, requirements=["C", "W"])
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    planes = torch.nn.functional.interpolate(planes, size, mode="bilinear", antialias=True)
    return planes[0].permute(1, 2, 0).numpy()


def _size(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if image_size is None:
        return None
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if not (0 < height <= 4096 and 0 < width <= 4096):
        raise InputError(f"`image_size` must lie between 1 and 4096; got {image_size!r}.")
    return int(height), int(width)


# Batches ----------------------------------------------------------------------------------------


def stream(dataset: RowSource, batches: Sequence[Tensor], workers: int) -> Iterator[Batch]:
    """Yield (inputs, targets, rows) of each batch. With ``workers``, processes decode them."""
    if workers == 0:
        return map(dataset.batch, batches)
    loader = DataLoader(
        _Batches(dataset, batches),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4,
        worker_init_fn=end_with_parent,
        multiprocessing_context=WORKER_START,
    )
    return iter(loader)


class _Batches(torch.utils.data.Dataset[Batch]):
    """Batches as items of a data set, so workers build whole batches and nothing is collated."""

    def __init__(self, dataset: RowSource, batches: Sequence[Tensor]) -> None:
        self.dataset, self.batches = dataset, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Batch:
        # A thread of the worker sends a batch and moves the memory of its row numbers into shared
        # memory. Batches cut from one permutation share that memory. Without a copy, it would move
        # while the next batch reads its rows from it.
        return self.dataset.batch(self.batches[number].clone())
