"""``credibly calibrate SCORES --loss asl``: calibrate the scores of a model trained elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli import tables
from credibly.cli.command import Scanned, option
from credibly.cli.import_ import ImportOptions, check_inputs, layout_of
from credibly.names import METHODS

if TYPE_CHECKING:
    from credibly.workflows.calibrated_scores import CalibratedScores

SHOWN = ("mAP@y", "mAP@x", "ACE", "MCE", "ECE", "NLL", "Brier")


@dataclass(frozen=True, kw_only=True)
class Options(ImportOptions, Scanned):
    """Turn the scores of a model trained elsewhere into calibrated probabilities.

    The command compares the link of the loss and the raw scores, each alone and with a calibrator
    (temperature, affine = Platt scaling, beta, per-label), by cross-validated log loss on some of
    the rows. It keeps the best and shows the metrics before and after on the other rows. Scores of
    a softmax are scaled before it, so rows still sum to 1.

    SCORES is .npz (`scores`, `targets`, optional `labels`, `ids`, `split`), .csv or .parquet
    (`s:<label>` or plain label columns, `y:<label>`, optional `id`, `split`). If `split` is given,
    calibration rows (2) are used for fitting, test rows (1) for the metrics, training rows (0) for
    neither. The truth may be in another file (--truth). Save the fitted map with --save, and apply
    it to other rows of the same model with --apply.

    Examples:
      credibly calibrate scores.npz --loss asl --out predictions.parquet
      credibly calibrate val.npz --loss asl --truth y.csv --save map.json
      credibly calibrate test.npz --apply map.json --out predictions.parquet
      credibly calibrate probabilities.csv --as probabilities --truth y.csv --save map.json
      credibly calibrate scores.csv --loss 'asl(gamma_neg=4, detach_weight=true)' \\
        --method affine --out predictions.parquet
    """

    scores: str = option(help="file of scores and truth", positional=True, metavar="SCORES")
    loss: str | None = option(
        None, help="loss the model was trained with, e.g. asl, 'focal(gamma_neg=3)'"
    )
    out: str | None = option(None, help="predictions file to write", metavar="FILE")
    save: str | None = option(None, help="file to write the fitted map to", metavar="MAP")
    apply: str | None = option(None, help="map to apply instead of fitting one", metavar="MAP")
    values: str | None = option(
        None,
        help="what plain columns and arrays hold (default: logits)",
        choices=("logits", "probabilities"),
        flag="as",
    )
    method: str = option(
        "auto",
        help="auto: link or raw scores, and the map, by log loss on left-out rows; or a map to put "
        "after the link (affine is Platt scaling)",
        choices=METHODS,
    )
    fraction: float = option(0.5, help="share of the rows with truth to fit on")
    rows: int | None = option(None, help="number of rows to fit on, instead of a share")
    keep: str = option(
        "all", help="rows to write; judged leaves out the rest", choices=("all", "judged")
    )
    seed: int = option(0, help="seed of the split", between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.checks import InputError
    from credibly.files import check_out
    from credibly.names import check_loss

    if options.out is None and options.save is None:
        raise InputError("--out or --save must be given: a file of predictions, or of the map.")
    if options.loss is not None:
        check_loss(options.loss)
    inputs = check_inputs(options, options.scores, options.apply)
    if options.out is not None and options.engine == "local":
        check_out(options.out, (".parquet",), inputs=inputs)
    if options.save is not None:
        check_out(options.save, (".json",), inputs=inputs)
    _fit(options) if options.apply is None else _apply(options)


def _fit(options: Options) -> None:
    from credibly.notebook import counted
    from credibly.workflows import FitRows, calibrate_dataset, calibrate_file
    from credibly.workflows.rows import holds_top_labels

    fit_rows = FitRows(options.fraction, options.rows, options.seed)
    whole = options.engine == "spark" or holds_top_labels(options.scores)
    if whole:
        _check_dataset(options)
        assert options.out is not None
        result = calibrate_dataset(
            options.scores,
            options.out,
            options.loss,
            method=options.method,
            fit_rows=fit_rows,
            partial=options.partial,
            executor=options.engine,
        )
        written = "All rows"
    else:
        values: Any = options.values
        result = calibrate_file(
            options.scores,
            options.loss,
            method=options.method,
            fit_rows=fit_rows,
            partial=options.partial,
            values=values,
            truth=options.truth,
            layout=layout_of(options),
            certain=options.certain,
        )
        kept = result.predictions if options.keep == "all" else result.predictions[result.held_out]
        if options.out is not None:
            kept.write(options.out)
        written = counted(len(kept), "row")
    if options.save is not None:
        result.probability_map.write(options.save)
    if options.json:
        tables.print_json({"out": options.out, "save": options.save, **result.to_dict()})
    elif not options.quiet:
        _show(result)
        if options.out is not None:
            note = "" if whole else _fitted_note(options, result)
            tables.print_text(f"{written} written to {options.out}{note}")
        if options.save is not None:
            tables.print_text(
                f"Map written to {options.save}. Next: credibly calibrate FILE --apply "
                f"{options.save} --out predictions.parquet"
            )


def _check_dataset(options: Options) -> None:
    """Refuse what does not go with predictions on a cluster, or with the most probable labels."""
    from credibly.checks import InputError

    given = [("apply", options.apply), ("truth", options.truth), ("as", options.values)]
    given += [("keep", None if options.keep == "all" else options.keep)]
    if options.engine == "spark":
        why = "--engine spark, which reads predictions"
    else:
        why = f"{options.scores}, which holds the most probable labels of each row"
        given += [("loss", options.loss), ("save", options.save)]
    for flag, value in given:
        if value is not None:
            raise InputError(f"--{flag} does not go with {why}.")
    if options.out is None:
        raise InputError(f"--out must be given with {why}.")


def _apply(options: Options) -> None:
    from credibly.checks import InputError
    from credibly.notebook import counted
    from credibly.workflows import ProbabilityMap

    for name in ("loss", "save", "values"):
        if getattr(options, name) is not None:
            flag = "as" if name == "values" else name
            raise InputError(
                f"--{flag} does not go with --apply: the map knows what it was fitted on."
            )
    assert options.apply is not None
    if options.out is None:
        raise InputError("--out must be given with --apply: the predictions file to write.")
    fitted = ProbabilityMap.read(options.apply)
    predictions = fitted.apply(
        options.scores,
        truth=options.truth,
        layout=layout_of(options),
        certain=options.certain,
        partial=options.partial,
    )
    predictions.write(options.out)
    tables.tell(
        options,
        {"out": options.out, "rows": len(predictions), "map": options.apply},
        f"{counted(len(predictions), 'row')} written to {options.out}",
    )


def _fitted_note(options: Options, result: CalibratedScores) -> str:
    if options.keep == "judged":
        return f". Next: credibly evaluate {options.out}"
    return (
        f", {len(result.fitted):,} of them used for fitting. To evaluate the file, write it "
        "with --keep judged, which leaves those out."
    )


def _show(result: CalibratedScores) -> None:
    title = f"metrics on {len(result.held_out):,} rows that were not used for fitting"
    rows = [[name, *(numbers.get(n) for n in SHOWN)] for name, numbers in result.stages.items()]
    tables.print_table(title, ["", *SHOWN], rows)
    if result.candidates:
        tables.print_table(
            f"log loss of each candidate, {len(result.fitted):,} rows, cross-validated",
            ["", "calibrator", "NLL", "above the lowest", "standard error"],
            [row for row in result.candidate_table() if row[2] < math.inf],
        )
    tables.print_text(result.statement)
