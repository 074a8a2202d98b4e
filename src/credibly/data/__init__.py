"""Where rows come from: features or images, and what is known of their labels.

    >>> import credibly as cr
    >>> data = cr.data.load("digits", n=200, seed=0)
    >>> data.part("train").targets.shape[1], data.image(0).shape
    (10, (28, 28, 1))

``load`` takes a name, a file or ``KIND:PATH``; the layouts it reads are listed in docs/data.md.
"""

from credibly.data._digits import digits
from credibly.data._load import KINDS, load
from credibly.data._rows import Data
from credibly.data._split import CALIBRATION, TEST, TRAIN, split_rows
from credibly.data._synthetic import synthetic

__all__ = [
    "CALIBRATION",
    "KINDS",
    "TEST",
    "TRAIN",
    "Data",
    "digits",
    "load",
    "split_rows",
    "synthetic",
]
