"""Options that commands share which read values of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli.command import option

if TYPE_CHECKING:
    from credibly.predictions import Layout


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Where the truth is, and how a file names its rows and labels."""

    truth: str | None = option(
        None, help="file of the truth, matched by id and label", metavar="FILE"
    )
    labels: tuple[str, ...] = option((), help="names of the labels, separated by commas")
    id_column: str | None = option(None, help="column of the ids (default: id, image_id, …)")
    value_columns: str | None = option(
        None, help="columns of the values, * for the label, e.g. 'pred_*'; or an array's name"
    )
    truth_columns: str | None = option(
        None, help="columns of the truth, e.g. 'true_*'; or an array's name"
    )
    suffix: str = option("", help="ending to take off ids, e.g. .jpg")
    label_column: str | None = option(
        None, help="column of the truth that lists the labels of a row (default: labels, tags, …)"
    )
    separator: str | None = option(None, help="between the labels of such a list")
    certain: bool = option(False, help="accept logits that all lie in [0, 1]")
    coding: str | None = option(
        None,
        help="meaning of −1 in targets of only −1 and +1: signed (absent) or unknown",
        choices=("signed", "unknown"),
    )


def layout_of(options: ImportOptions) -> Layout:
    from credibly.predictions import Layout

    return Layout(
        labels=list(options.labels) or None,
        id_column=options.id_column,
        suffix=options.suffix,
        label_column=options.label_column,
        separator=options.separator,
        value_columns=options.value_columns,
        truth_columns=options.truth_columns,
    )


def check_inputs(options: ImportOptions, *paths: str | None) -> list[str]:
    """Return the files that a command reads."""
    return [path for path in (*paths, options.truth) if path is not None]


def coding_of(options: ImportOptions) -> Any:
    return options.coding
