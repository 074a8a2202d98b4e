"""``credibly calibrate SCORES --loss asl``: honest probabilities from a model trained elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli._command import option
from credibly.names import CALIBRATORS

if TYPE_CHECKING:
    from credibly.workflows import CalibratedScores

SHOWN = ("mAP@y", "mAP@x", "ACE", "MCE", "ECE", "NLL", "Brier")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Turn the scores of a model trained elsewhere into calibrated probabilities.

    The scores go through the link of the loss they were trained with, then through a calibrator
    fitted on some of the rows; the table before and after is judged on the others. SCORES is .npz
    (`scores`, `targets`, optional `labels`, `ids`, `split`), .csv or .parquet (`s:<label>` or plain
    label columns, `y:<label>`, optional `id`, `split`). Where `split` marks calibration rows (2),
    those are used for fitting and the test rows (1) for judging; train rows (0) for neither.

    Examples:
      credibly calibrate scores.npz --loss asl --out predictions.parquet
      credibly calibrate scores.csv --loss 'asl(gamma_neg=4, detach_weight=true)' \\
        --method choose --out predictions.parquet
    """

    scores: str = option(help="file of scores and truth", positional=True, metavar="SCORES")
    loss: str = option(help="loss the model was trained with, e.g. asl, 'focal(gamma_neg=3)'")
    out: str = option(help="predictions file to write", metavar="FILE")
    method: str = option(
        "affine",
        help="calibrator; choose takes the best in folds",
        choices=(*CALIBRATORS, "choose"),
    )
    fraction: float = option(0.5, help="share of the rows with truth to fit on")
    rows: int | None = option(None, help="number of rows to fit on, instead of a share")
    keep: str = option(
        "all", help="rows to write; judged leaves out the rest", choices=("all", "judged")
    )
    seed: int = option(0, help="seed of the split", between=(0, 2**63 - 1))
    coding: str | None = option(
        None,
        help="meaning of −1 in targets of only −1 and +1: signed (absent) or unknown",
        choices=("signed", "unknown"),
    )
    partial: bool = option(False, help="read a folder although some of its shards are missing")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
    from credibly.files import check_out
    from credibly.names import check_loss

    check_loss(options.loss)
    check_out(options.out, (".parquet",), inputs=[options.scores])
    from credibly.cli import _tables
    from credibly.workflows import FitRows, calibrate_file

    fit_rows = FitRows(options.fraction, options.rows, options.seed)
    coding: Any = options.coding
    result = calibrate_file(
        options.scores,
        options.loss,
        method=options.method,
        fit_rows=fit_rows,
        coding=coding,
        partial=options.partial,
    )
    kept = result.predictions if options.keep == "all" else result.predictions[result.held_out]
    kept.write(options.out)
    if options.json:
        _tables.print_json({"out": options.out, **result.to_dict()})
    elif not options.quiet:
        _show(result)
        _tables.print_text(
            f"{len(kept):,} rows written to {options.out}{_fitted_note(options, result)}"
        )
    return 0


def _fitted_note(options: Options, result: CalibratedScores) -> str:
    if options.keep == "judged":
        return f". Next: credibly evaluate {options.out}"
    return (
        f", {len(result.fitted):,} of them used for fitting. To evaluate the file, write it "
        "with --keep judged, which leaves those out."
    )


def _show(result: CalibratedScores) -> None:
    from credibly.cli import _tables

    title = f"judged on {len(result.held_out):,} rows that were not used for fitting"
    rows = [[name, *(numbers.get(n) for n in SHOWN)] for name, numbers in result.stages.items()]
    _tables.print_table(title, ["", *SHOWN], rows)
    change, low, high = result.change
    _tables.print_text(
        f"{result.calibrator!r}, fitted on {len(result.fitted):,} rows, changes NLL by "
        f"{change:+.4f} [{low:+.4f}, {high:+.4f}] (95 %) against {result.compared}."
    )
