"""``credibly import FILE --as logits --loss asl``: a predictions file from any other file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from credibly.cli import terminal
from credibly.cli.command import File, Printed, input_error, option

if TYPE_CHECKING:
    from credibly.predictions import Layout


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options for the truth, and for the names of rows and labels.

    Args:
        truth: file with the truth; rows are matched by id, columns by label
        labels: names of the labels, separated by commas
        id_column: column with the ids (default: id, image_id, …)
        value_columns: pattern of the columns that hold values; * is the label, e.g. 'pred_*'. In
            .npz files: name of the array
        truth_columns: pattern of the columns that hold the truth, e.g. 'true_*'. In .npz files:
            name of the array
        suffix: ending to remove from ids, e.g. .jpg
        label_column: column of the truth that lists the labels of a row (default: labels, tags, …)
        certain: accept logits even if all of them lie in [0, 1]
        coding: meaning of −1 if all targets are −1 or +1; signed: absent; unknown: unknown
    """

    TITLE = "what the columns are"

    truth: File | None = None
    labels: tuple[str, ...] = ()
    id_column: str | None = None
    value_columns: str | None = None
    truth_columns: str | None = None
    suffix: str = ""
    label_column: str | None = None
    certain: bool = False
    coding: Literal["signed", "unknown"] | None = None


def layout_of(options: ImportOptions) -> Layout:
    from credibly.predictions import Layout

    names = (each.name for each in fields(Layout) if each.name != "labels")
    given = {name: getattr(options, name) for name in names}
    return Layout(list(options.labels) or None, **given)


def check_inputs(options: ImportOptions, *paths: str | None) -> list[str]:
    """Return the files that a command reads."""
    return [path for path in (*paths, options.truth) if path is not None]


@dataclass(frozen=True, kw_only=True)
class Options(ImportOptions, Printed):
    """Convert the output of another program into a predictions file.

    FILE is .npy, .npz, .pt (tensors only), .csv, .parquet, .arrow or .feather. It holds a matrix,
    or an id and one column per label. Declare the values with --as; nothing is guessed. Logits also
    need --loss, the loss that trained the model (bce for a plain sigmoid and for margins of XGBoost
    and LightGBM). The truth may be in the same file (columns y:<label>) or in another file
    (--truth) with one column per label, or one column that lists the labels of a row.

    Examples:
      credibly import logits.npy --as logits --loss asl --labels cat,dog --out predictions.parquet
      credibly import submission.csv --as probabilities --truth train.csv --suffix .jpg \\
        --out predictions.parquet

    Args:
        file: file to import
        out: predictions file to write
        values: what the values are: logits (before any sigmoid) or probabilities
        loss: loss that trained the model; needed with --as logits
    """

    file: str = option(positional=True)
    out: File
    values: Literal["logits", "probabilities"] | None = option(None, flag="as")
    loss: str | None = None


def run(options: Options) -> None:
    from credibly.files import check_out
    from credibly.names import check_loss
    from credibly.notebook import counted

    if options.loss is not None:
        check_loss(options.loss)
    check_out(options.out, (".parquet",), inputs=check_inputs(options, options.file))
    values = options.values
    if values is None:
        raise input_error(
            f"{options.file}: declare what the values are. Give --as probabilities, or --as "
            "logits with --loss LOSS (bce for a plain sigmoid)."
        )
    from credibly.predictions import Predictions

    predictions = Predictions.from_values(
        options.file,
        "logits" if values == "logits" else "probabilities",
        loss=options.loss,
        truth=options.truth,
        layout=layout_of(options),
        certain=options.certain,
    )
    predictions.write(options.out)
    rows, labels, known = len(predictions), predictions.num_labels, predictions.targets is not None
    terminal.tell(
        options,
        {"out": options.out, "rows": rows, "labels": labels, "has_truth": known},
        f"Wrote {counted(rows, 'row')} × {counted(labels, 'label')}, "
        f"{'with' if known else 'without'} truth, to {options.out}. Next: credibly "
        + (f"evaluate {options.out}" if known else f"search {options.out} QUERY"),
    )
