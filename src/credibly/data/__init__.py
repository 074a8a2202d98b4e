"""Where rows come from: features, images or texts, and what is known of their labels.

    >>> import credibly as cr
    >>> data = cr.data.load("digits", n=200, seed=0)
    >>> data.part("train").targets.shape[1], data.image(0).shape
    (10, (28, 28, 1))

``load`` takes a name, a file, ``KIND:PATH`` or a data frame; docs/data.md lists the layouts it
reads. ``KINDS`` and ``OPTIONS`` are the table of readers and their options. Importing this package
does not import numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.data._readers import EMBEDDED, KINDS, OPTIONS, SHARED, Option, Reader

if TYPE_CHECKING:
    from credibly.data._augment import Augment
    from credibly.data._digits import digits
    from credibly.data._encoded import Encoded, SparseRows, Tensors, TokenRows
    from credibly.data._folds import StratifiedFolds
    from credibly.data._image_folder import ImageFolder
    from credibly.data._load import from_arrays, load, load_new, load_texts
    from credibly.data._parse import read_json
    from credibly.data._rows import Data
    from credibly.data._sparse_features import MANY_FEATURES, SparseFeatures
    from credibly.data._split import CALIBRATION, TEST, TRAIN, hold_out, rarest_label, split_rows
    from credibly.data._synthetic import synthetic
    from credibly.data._torch import DEFAULT_SIZE
    from credibly.data._vqa import vqa_counts
    from credibly.data.image_files import decode_image

__all__ = [
    "CALIBRATION",
    "DEFAULT_SIZE",
    "EMBEDDED",
    "KINDS",
    "MANY_FEATURES",
    "OPTIONS",
    "SHARED",
    "TEST",
    "TRAIN",
    "Augment",
    "Data",
    "Encoded",
    "ImageFolder",
    "Option",
    "Reader",
    "SparseFeatures",
    "SparseRows",
    "StratifiedFolds",
    "Tensors",
    "TokenRows",
    "decode_image",
    "digits",
    "from_arrays",
    "hold_out",
    "load",
    "load_new",
    "load_texts",
    "rarest_label",
    "read_json",
    "split_rows",
    "synthetic",
    "vqa_counts",
]

_WHERE = {
    "Augment": "_augment",
    "CALIBRATION": "_split",
    "DEFAULT_SIZE": "_torch",
    "Data": "_rows",
    "StratifiedFolds": "_folds",
    "Encoded": "_encoded",
    "ImageFolder": "_image_folder",
    "MANY_FEATURES": "_sparse_features",
    "SparseFeatures": "_sparse_features",
    "SparseRows": "_encoded",
    "TEST": "_split",
    "TRAIN": "_split",
    "Tensors": "_encoded",
    "TokenRows": "_encoded",
    "decode_image": "image_files",
    "digits": "_digits",
    "from_arrays": "_load",
    "hold_out": "_split",
    "load": "_load",
    "load_new": "_load",
    "load_texts": "_load",
    "rarest_label": "_split",
    "read_json": "_parse",
    "split_rows": "_split",
    "synthetic": "_synthetic",
    "vqa_counts": "_vqa",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"credibly.data.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'credibly.data' has no attribute {name!r}")
