"""``credibly import FILE --as logits --loss asl``: a predictions file from any other file."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import option
from credibly.cli.import_options import ImportOptions, check_inputs, coding_of, layout_of


@dataclass(frozen=True, kw_only=True)
class Options(ImportOptions):
    """Make a predictions file from what another program wrote.

    FILE is .npy, .npz, .pt (tensors only), .csv, .parquet, .arrow or .feather: a matrix, or an id
    and one column per label. What its values are is declared with --as and never guessed; logits
    also need the loss that owns their map to probabilities (bce for a plain sigmoid, and for
    margins of XGBoost and LightGBM). The truth is in the file (y:<label>), or in another one:
    one column per label, or one that lists the labels of a row.

    Examples:
      credibly import logits.npy --as logits --loss asl --labels cat,dog --out predictions.parquet
      credibly import submission.csv --as probabilities --truth train.csv --suffix .jpg \\
        --out predictions.parquet
    """

    file: str = option(help="file to import", positional=True, metavar="FILE")
    out: str = option(help="predictions file to write", metavar="FILE")
    values: str | None = option(
        None,
        help="what the values are: logits (before any sigmoid) or probabilities",
        choices=("logits", "probabilities"),
        flag="as",
    )
    loss: str | None = option(None, help="of logits: the loss the model was trained with")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    from credibly.checks import InputError
    from credibly.files import check_out
    from credibly.names import check_loss

    if options.loss is not None:
        check_loss(options.loss)
    check_out(options.out, (".parquet",), inputs=check_inputs(options, options.file))
    values = options.values
    if values is None:
        raise InputError(
            f"{options.file}: what its values are must be declared, not guessed: --as "
            "probabilities, or --as logits with --loss LOSS (bce for a plain sigmoid)."
        )
    from credibly.predictions import Predictions

    predictions = Predictions.from_file(
        options.file,
        "logits" if values == "logits" else "probabilities",
        loss=options.loss,
        truth=options.truth,
        layout=layout_of(options),
        certain=options.certain,
        coding=coding_of(options),
    )
    predictions.write(options.out)
    _show(options, predictions.num_labels, len(predictions), predictions.targets)
    return 0


def _show(options: Options, labels: int, rows: int, targets: object) -> None:
    from credibly.cli import tables

    if options.json:
        document = {"out": options.out, "rows": rows, "labels": labels}
        tables.print_json({**document, "has_truth": targets is not None})
    elif not options.quiet:
        truth = "with their truth" if targets is not None else "without truth"
        following = "evaluate" if targets is not None else "search"
        tables.print_text(
            f"{rows:,} rows × {labels:,} labels, {truth}, written to {options.out}. Next: credibly "
            f"{following} {options.out}"
        )
