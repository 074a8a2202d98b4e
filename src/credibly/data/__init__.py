"""Load rows: features, images or texts, with their labels.

    >>> import credibly as cr
    >>> data = cr.data.load("digits", n=200, seed=0)
    >>> data.part("train").targets.shape[1], data.image(0).shape
    (10, (28, 28, 1))

``load`` takes a name, a file, ``KIND:PATH`` or a data frame; docs/guide/data.md lists the layouts.
Other packages can add readers by the entry-point group ``credibly.readers``. Importing this package
does not import numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from credibly.data.embedded import digits, synthetic
    from credibly.data.folds import StratifiedFolds
    from credibly.data.loading import from_arrays, load
    from credibly.data.rows import Data
    from credibly.data.sparse_rows import SparseRows

__all__ = [
    "Data",
    "SparseRows",
    "StratifiedFolds",
    "digits",
    "from_arrays",
    "load",
    "synthetic",
]

_WHERE = {
    "Data": "rows",
    "SparseRows": "sparse_rows",
    "StratifiedFolds": "folds",
    "digits": "embedded",
    "from_arrays": "loading",
    "load": "loading",
    "synthetic": "embedded",
}


def __getattr__(name: str) -> object:
    if name in _WHERE:
        globals()[name] = found = getattr(import_module(f"credibly.data.{_WHERE[name]}"), name)
        return found
    raise AttributeError(f"module 'credibly.data' has no attribute {name!r}")
