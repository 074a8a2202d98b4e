"""``credibly calibrate SCORES --loss asl``: calibrate the scores of a model trained elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, input_error, option, refuse
from credibly.cli.import_ import ImportOptions, check_inputs, layout_of
from credibly.names import METHODS
from credibly.types import JsonObject

if TYPE_CHECKING:
    from credibly.workflows.calibrated_scores import CalibratedScores

SHOWN = ("mAP@y", "mAP@x", "ACE", "MCE", "ECE", "NLL", "Brier")


@dataclass(frozen=True, kw_only=True)
class Options(ImportOptions, Scanned):
    """Turn the scores of a model into calibrated probabilities.

    The calibrator is fitted on one part of the rows. The metrics of the other rows show the effect.
    By default the command tries the link of the loss and the raw scores, each alone and with
    temperature scaling, Platt scaling (affine), beta and per-label calibration. It keeps the best
    one by cross-validated log loss. Scores of a softmax are calibrated before the softmax, so rows
    still sum to 1.

    SCORES is .npz (`scores`, `targets`, optional `labels`, `ids`, `split`), .csv or .parquet
    (`s:<label>` or plain label columns, `y:<label>`, optional `id`, `split`). If `split` is given,
    calibration rows (2) are used for fitting and test rows (1) for the metrics. Training rows (0)
    are not used. The truth may be in another file (--truth). --save writes the fitted map. --apply
    applies it to other rows of the same model.

    Examples:
      credibly calibrate scores.npz --loss asl --out predictions.parquet
      credibly calibrate val.npz --loss asl --truth y.csv --save map.json
      credibly calibrate test.npz --apply map.json --out predictions.parquet
      credibly calibrate probabilities.csv --as probabilities --truth y.csv --save map.json
      credibly calibrate scores.csv --loss 'asl(gamma_neg=4, detach_weight=true)' \\
        --method affine --out predictions.parquet

    Args:
        scores: file with the scores, and the truth unless --truth is given
        loss: loss that trained the model, e.g. asl, 'focal(gamma_neg=3)'
        out: predictions file to write
        save: file to write the fitted map to
        apply: map to apply instead of fitting one
        values: what columns without prefix and arrays hold (default: logits)
        method: calibrator to fit; auto tries all and keeps the best (affine is Platt scaling)
        fraction: share of the rows with truth that is used for fitting
        rows: number of rows that are used for fitting, instead of --fraction
        keep: rows to write; judged: only those that were not used for fitting, for `evaluate`
        seed: seed of the split
    """

    scores: str = option(positional=True)
    loss: str | None = None
    out: File | None = None
    save: str | None = option(None, metavar="MAP")
    apply: str | None = option(None, metavar="MAP")
    values: Literal["logits", "probabilities"] | None = option(None, flag="as")
    method: str = option("auto", choices=METHODS)
    fraction: float = 0.5
    rows: int | None = None
    keep: Literal["all", "judged"] = "all"
    seed: int = option(0, between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.files import check_out
    from credibly.names import check_loss

    if options.out is None and options.save is None:
        raise input_error(
            "there is nothing to write; give --out FILE for predictions, --save MAP, or both."
        )
    if options.loss is not None:
        check_loss(options.loss)
    inputs = check_inputs(options, options.scores, options.apply)
    if options.out is not None and options.engine == "local":
        check_out(options.out, (".parquet",), inputs=inputs)
    if options.save is not None:
        check_out(options.save, (".json",), inputs=inputs)
    _fit(options) if options.apply is None else _apply(options, options.apply)


def _fit(options: Options) -> None:
    from credibly.notebook import counted
    from credibly.workflows import FitRows, calibrate_dataset, calibrate_file
    from credibly.workflows.rows import holds_top_labels

    fit_rows = FitRows(options.fraction, options.rows, options.seed)
    shared: JsonObject = {"method": options.method, "fit_rows": fit_rows}
    shared |= {"partial": options.partial}
    spark = options.engine == "spark"
    if spark or holds_top_labels(options.scores):
        why = "--engine spark, which reads predictions files only"
        if not spark:
            why = f"{options.scores}, which holds only the most probable labels of each row"
            refuse(options, ("loss", "save"), why)
        refuse(options, ("truth", "values", "keep"), why)
        if options.out is None:
            raise input_error(f"--out must be given with {why}.")
        result = calibrate_dataset(
            options.scores, options.out, options.loss, executor=options.engine, **shared
        )
        written = f"Wrote all rows to {options.out}."
    else:
        shared |= {"values": options.values, "truth": options.truth, "certain": options.certain}
        result = calibrate_file(options.scores, options.loss, layout=layout_of(options), **shared)
        kept = result.predictions if options.keep == "all" else result.predictions[result.held_out]
        if options.out is not None:
            kept.write(options.out)
        written = f"Wrote {counted(len(kept), 'row')} to {options.out}"
        if options.keep == "judged":
            written += f". Next: credibly evaluate {options.out}"
        else:
            written += (
                f"; {len(result.fitted):,} of them were used for fitting. To evaluate the file, "
                "write it with --keep judged, which leaves those out."
            )
    if options.save is not None:
        result.pipeline.write(options.save)
    document = {"out": options.out, "save": options.save, **result.to_dict()}
    terminal.tell(options, document, lambda: _show(options, result, written))


def _apply(options: Options, path: str) -> None:
    from credibly.notebook import counted
    from credibly.workflows.calibrated_scores import apply_map, read_map

    refuse(options, ("loss", "save", "values"), "--apply, which applies a map as it is")
    refuse(options, ("keep", "rows"), "--apply, which fits nothing")
    if options.engine == "spark":
        raise input_error("--apply cannot be combined with --engine spark; leave one out.")
    if options.out is None:
        raise input_error("--apply needs --out, the predictions file to write.")
    predictions = apply_map(
        read_map(path),
        options.scores,
        truth=options.truth,
        layout=layout_of(options),
        certain=options.certain,
        partial=options.partial,
    )
    predictions.write(options.out)
    terminal.tell(
        options,
        {"out": options.out, "rows": len(predictions), "map": path},
        f"Wrote {counted(len(predictions), 'row')} to {options.out}.",
    )


def _show(options: Options, result: CalibratedScores, written: str) -> None:
    from credibly.notebook import counted

    title = f"metrics on {counted(len(result.held_out), 'row')} that were not used for fitting"
    rows = [[name, *(numbers.get(n) for n in SHOWN)] for name, numbers in result.stages.items()]
    terminal.print_table(title, ["", *SHOWN], rows)
    if result.candidates:
        terminal.print_table(
            f"cross-validated log loss on {counted(len(result.fitted), 'row')}",
            ["", "calibrator", "NLL", "above the lowest", "standard error"],
            [row for row in result.candidate_table() if row[2] < math.inf],
        )
    terminal.print_text(result.statement)
    if options.out is not None:
        terminal.print_text(written)
    if options.save is not None:
        terminal.print_text(
            f"Wrote the map to {options.save}. Next: credibly calibrate FILE --apply "
            f"{options.save} --out predictions.parquet"
        )
