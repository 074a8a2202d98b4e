"""Every reader and its options, in one table: ``load`` checks by it, the command line makes flags.

The command line reads this module for its flags, so it imports nothing that takes time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Option:
    """An option that one or more readers take.

    Attributes:
        kind: type of its value, or of each value where ``many``.
        help: one line for the command line.
        many: whether it is a list.
        choices: the values it may have, if they are few.
        flag: whether the command line has it.
    """

    kind: type
    help: str
    many: bool = False
    choices: tuple[str, ...] | None = None
    flag: bool = True


@dataclass(frozen=True)
class Reader:
    """The function that reads one kind of source.

    Attributes:
        module: the module of ``credibly.data`` that holds it.
        function: its name; it takes the path and the options, and returns ``Data``.
        options: the options it takes, each a key of ``OPTIONS`` or ``SHARED``.
        endings: endings of files that are read without ``KIND:`` before the path.
        table: whether it takes the options of ``LAYOUT`` together, as a ``Layout``.
    """

    module: str
    function: str
    options: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    table: bool = False


SHARED: Mapping[str, Option] = MappingProxyType(
    {
        "labels": Option(str, "label names in order; of a table, the label columns", many=True),
        "test": Option(float, "share of test rows, where no split is published"),
        "calibration": Option(float, "share of training rows held out, where none are published"),
    }
)
"""Options that ``load`` itself takes for every source."""

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "coding": Option(
            str,
            "meaning of −1 in targets of only −1 and +1: signed (absent) or unknown",
            choices=("signed", "unknown"),
        ),
        "label_column": Option(str, "column of a table that holds label names"),
        "separator": Option(str, "what separates the names in that column; none: nothing does"),
        "text": Option(str, "column of a table that holds texts; two for pairs", many=True),
        "image_column": Option(str, "column of a table that holds image paths or bytes"),
        "images": Option(str, "folder that the image paths of a table start from"),
        "suffix": Option(str, "what to append to the image paths of a table, e.g. .jpg"),
        "ignore": Option(str, "columns of a table to leave out", many=True),
        "regions": Option(str, "file or folder of features of image regions (vqa)"),
        "soft": Option(
            str, "soft targets of vqa from n human answers", choices=("lxmert", "printed")
        ),
        "min_occurrence": Option(int, "questions that an answer of vqa must be right for"),
        "delimiter": Option(str, "character between the cells of a CSV file"),
        "xml": Option(str, "file that names the labels of an ARFF file"),
        "year": Option(int, "year of the COCO files, where there are several"),
        "drop_empty": Option(bool, "leave out images without any label (coco, nuswide)"),
        "split": Option(
            str, "split of NUS-WIDE: as published, or 150,000 drawn", choices=("published", "gong")
        ),
        "partition": Option(int, "which of the ten published splits of dtd or sun397"),
        "level": Option(str, "classes of aircraft", choices=("variant", "family", "manufacturer")),
        "per_class": Option(int, "training images per class of caltech101"),
        "classes_seed": Option(int, "draw of the classes that cifar60+40 leaves without labels"),
        "n": Option(int, "number of rows", flag=False),
        "size": Option(int, "side of a scene in pixels", flag=False),
        "counts": Option(float, "frequencies of scenes with 0, 1, … digits", True, flag=False),
        "clutter": Option(float, "stray fragments", flag=False),
        "blur": Option(float, "share of scenes out of focus", flag=False),
        "num_labels": Option(int, "number of labels", flag=False),
        "num_features": Option(int, "number of features", flag=False),
        "rate": Option(float, "rate of the most frequent label", flag=False),
        "imbalance": Option(float, "how many times rarer the rarest label is", flag=False),
        "dependence": Option(float, "correlation of labels given the features", flag=False),
        "noise": Option(float, "probability that a label is flipped", flag=False),
        "sharpness": Option(float, "how far the features decide", flag=False),
        "curvature": Option(float, "weight of a quadratic term", flag=False),
        "unknown": Option(float, "share of unknown targets", flag=False),
    }
)
"""Options that some readers take: name → what it is."""

LAYOUT = (
    *("labels", "label_column", "separator", "text", "image_column", "images", "suffix"),
    *("ignore", "coding"),
)
"""Options that say what the columns of a table are: the fields of ``Layout``."""

EMBEDDED: Mapping[str, Reader] = MappingProxyType(
    {
        "digits": Reader("digits_scenes", "digits", ("n", "size", "counts", "clutter", "blur")),
        "synthetic": Reader(
            "synthetic_data",
            "synthetic",
            (
                *("n", "num_labels", "num_features", "rate", "imbalance", "dependence", "noise"),
                *("sharpness", "curvature", "unknown"),
            ),
        ),
    }
)
"""Names that make their own rows."""

KINDS: Mapping[str, Reader] = MappingProxyType(
    {
        "npz": Reader("npz", "read_npz", ("labels", "coding"), (".npz",)),
        "parquet": Reader("table_files", "read_parquet", LAYOUT, (".parquet", ".pq"), table=True),
        "csv": Reader(
            "table_files", "read_csv", (*LAYOUT, "delimiter"), (".csv", ".tsv"), table=True
        ),
        "jsonl": Reader(
            "jsonl", "read_jsonl", LAYOUT, (".jsonl", ".ndjson", ".jsonl.gz"), table=True
        ),
        "arff": Reader("arff", "read_arff", ("labels", "xml", "coding"), (".arff",)),
        "xc": Reader("xc", "read_xc", ("labels",), (".svm", ".svmlight", ".libsvm")),
        "imagefolder": Reader("class_folders", "read_imagefolder", ("labels",)),
        "coco": Reader("coco", "read_coco", ("year", "drop_empty")),
        "voc": Reader("voc", "read_voc"),
        "wider": Reader("attributes", "read_wider"),
        "vispr": Reader("attributes", "read_vispr"),
        "nuswide": Reader("nuswide", "read_nuswide", ("drop_empty", "split")),
        "cifar10": Reader("cifar", "read_cifar10"),
        "cifar100": Reader("cifar", "read_cifar100"),
        "cifar60+40": Reader("cifar", "read_cifar60_40", ("classes_seed",)),
        "tinyimagenet": Reader("class_folders", "read_tinyimagenet"),
        "plantnet": Reader("class_folders", "read_plantnet"),
        "aircraft": Reader("transfer", "read_aircraft", ("level",)),
        "caltech101": Reader("transfer", "read_caltech101", ("per_class",)),
        "cars": Reader("transfer", "read_cars"),
        "cub": Reader("transfer", "read_cub"),
        "dtd": Reader("transfer", "read_dtd", ("partition",)),
        "flowers": Reader("transfer", "read_flowers"),
        "food101": Reader("transfer", "read_food101"),
        "pets": Reader("transfer", "read_pets"),
        "sun397": Reader("transfer", "read_sun397", ("partition",)),
        "vqa": Reader("vqa", "read_vqa", ("labels", "regions", "soft", "min_occurrence")),
        "hf": Reader(
            "huggingface",
            "read_huggingface",
            ("labels", "label_column", "separator", "text", "image_column", "ignore", "coding"),
            table=True,
        ),
    }
)
"""What may stand before the colon of ``KIND:PATH``, and the reader behind it."""

FRAME = Reader("table_files", "read_frame", LAYOUT, table=True)
"""The reader of data frames."""
