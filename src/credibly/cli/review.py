"""``credibly review PREDICTIONS``: which entries of the truth are probably wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, input_error, option

if TYPE_CHECKING:
    from credibly.review.issues import LabelIssues

ENDINGS = {"csv": ".csv", "label-studio": ".json", "fiftyone": ".json"}
MAX_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """List labels that are probably wrong, for review.

    PREDICTIONS must hold the truth, and calibrated probabilities of a model that was not trained on
    these rows. A label is missing (annotated absent, probably present), extra (annotated present,
    probably absent) or unknown (not annotated, probably present). The most certain come first.

    --out writes the labels to review: a CSV file with an empty column `decision`, tasks for Label
    Studio, or labels for FiftyOne. --reviews reads the decisions and writes corrected predictions.

    Examples:
      credibly review predictions.parquet --top 200 --out queue.csv
      credibly review predictions.parquet --format label-studio --root /images --out tasks.json
      credibly review predictions.parquet --reviews queue.csv --out corrected.parquet

    Args:
        predictions: predictions file, or folder of shards
        top: maximum number of labels to list
        kinds: kinds of labels to list, separated by commas
        min_probability: minimum probability that a listed label is wrong
        out: file to write; - prints it
        format: format of OUT and of --reviews
        root: with label-studio: address of the folder with the items
        suffix: with label-studio: ending of the items, e.g. .jpg
        reviews: file with the decisions of reviewers, to correct the truth
        queue: with fiftyone and --reviews: the CSV file of the labels to review
    """

    predictions: str = option(positional=True)
    top: int = option(200, between=(0, 2**31))
    kinds: tuple[str, ...] = ("missing", "extra", "unknown")
    min_probability: float = 0.5
    out: str | None = option(None, metavar="FILE", stdout=ENDINGS)
    format: str = option("csv", choices=tuple(ENDINGS))
    root: str = ""
    suffix: str = ""
    reviews: File | None = None
    queue: File | None = None


def run(options: Options) -> None:
    from credibly.files import check_out

    inputs = [each for each in (options.predictions, options.reviews, options.queue) if each]
    if options.out is not None:
        endings = (".parquet",) if options.reviews else (ENDINGS[options.format],)
        check_out(options.out, endings, inputs=inputs)
    if options.reviews is None:
        _review(options)
    elif options.out is None:
        raise input_error("--reviews needs --out, the predictions file to write.")
    else:
        _apply(options, options.reviews, options.out)


def _review(options: Options) -> None:
    from credibly.review import fiftyone, label_issues, label_studio

    kinds: Any = options.kinds
    issues = label_issues(
        options.predictions,
        top=options.top,
        kinds=kinds,
        min_probability=options.min_probability,
        partial=options.partial,
        executor=options.engine,
    )
    if options.out is not None and options.format == "csv":
        issues.write(options.out)
    elif options.out is not None and options.format == "fiftyone":
        fiftyone.write_labels(issues, options.out)
    elif options.out is not None:
        label_studio.write_tasks(issues, options.out, root=options.root, suffix=options.suffix)
    terminal.tell(options, {"out": options.out, **issues.to_dict()}, lambda: _show(options, issues))


def _apply(options: Options, path: str, out: str) -> None:
    from credibly import review
    from credibly.predictions import Predictions

    predictions = Predictions.read(options.predictions, partial=options.partial)
    if options.format == "csv":
        reviews = review.read_reviews(path)
    elif options.format == "label-studio":
        reviews = review.label_studio.read_reviews(path)
    elif options.queue is None:
        raise input_error("--format fiftyone with --reviews needs --queue, the queue as CSV.")
    else:
        reviews = review.fiftyone.read_reviews(path, review.read_queue(options.queue))
    corrected = review.apply_reviews(predictions, reviews)
    before, after = predictions.targets, corrected.targets
    changed = len(reviews) if before is None else int((before != after).sum())
    corrected.write(out)
    terminal.tell(
        options,
        {"out": out, "reviews": len(reviews), "changed": changed},
        f"Wrote {out}: {len(reviews):,} decisions, {changed:,} of which change the truth.",
    )


def _show(options: Options, issues: LabelIssues) -> None:
    from credibly.notebook import counted

    number = "label is" if issues.wrong == 1 else "labels are"
    terminal.print_text(f"{issues.wrong:,} {number} probably wrong.")
    if issues.issues:
        title = f"{counted(len(issues), 'label')} to review:"
        columns = ("id", "label", "kind", "truth", "probability", "error probability")
        rows = [
            (each.id, each.label, each.kind, each.given, each.probability, each.error_probability)
            for each in issues.issues
        ]
        terminal.print_table(title, columns, rows, MAX_SHOWN)
    if issues.errors:
        rows = [
            (each.label, each.known, f"{each.expected:.1f}")
            for each in sorted(issues.errors, key=lambda each: -each.expected)
        ]
        columns = ("label", "known", "errors, estimated")
        terminal.print_table("Labels with the most errors:", columns, rows, MAX_SHOWN)
    if total := issues.total:
        terminal.print_text(
            f"About {total.expected:,.0f} of {total.known:,} known labels are estimated to be "
            "wrong. The estimate also counts mistakes of the model. To check it, review a random "
            "sample."
        )
    if options.out is not None:
        terminal.print_text(f"Wrote {counted(len(issues), 'label')} to {options.out}.")
