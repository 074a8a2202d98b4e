"""Where rows come from: features, images or texts, and what is known of their labels.

    >>> import credibly as cr
    >>> data = cr.data.load("digits", n=200, seed=0)
    >>> data.part("train").targets.shape[1], data.image(0).shape
    (10, (28, 28, 1))

``load`` takes a name, a file, ``KIND:PATH`` or a data frame; docs/guide/data.md lists the layouts.
``KINDS`` are the general formats; other packages add readers by the entry-point group
``credibly.readers``. Importing this package does not import numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from credibly.data.readers import EMBEDDED, KINDS, OPTIONS, SHARED, Option, Reader

if TYPE_CHECKING:
    from credibly.data.augment import Augment
    from credibly.data.digits_scenes import digits
    from credibly.data.folds import StratifiedFolds
    from credibly.data.image_files import ImageFolder, decode_image
    from credibly.data.loading import from_arrays, load, load_new, load_texts
    from credibly.data.parsing import read_json
    from credibly.data.rows import Data
    from credibly.data.sparse_features import MANY_FEATURES, SparseFeatures
    from credibly.data.splits import CALIBRATION, TEST, TRAIN, hold_out, rarest_label, split_rows
    from credibly.data.synthetic_data import synthetic
    from credibly.data.token_rows import Encoded, SparseRows, Tensors, TokenRows
    from credibly.data.torch_datasets import DEFAULT_SIZE

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
]

_WHERE = {
    "Augment": "augment",
    "CALIBRATION": "splits",
    "DEFAULT_SIZE": "torch_datasets",
    "Data": "rows",
    "StratifiedFolds": "folds",
    "Encoded": "token_rows",
    "ImageFolder": "image_files",
    "MANY_FEATURES": "sparse_features",
    "SparseFeatures": "sparse_features",
    "SparseRows": "token_rows",
    "TEST": "splits",
    "TRAIN": "splits",
    "Tensors": "token_rows",
    "TokenRows": "token_rows",
    "decode_image": "image_files",
    "digits": "digits_scenes",
    "from_arrays": "loading",
    "hold_out": "splits",
    "load": "loading",
    "load_new": "loading",
    "load_texts": "loading",
    "rarest_label": "splits",
    "read_json": "parsing",
    "split_rows": "splits",
    "synthetic": "synthetic_data",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"credibly.data.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'credibly.data' has no attribute {name!r}")
