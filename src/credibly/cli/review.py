"""``credibly review PREDICTIONS``: which entries of the truth are probably wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, input_error, option

if TYPE_CHECKING:
    from credibly.predictions import Predictions
    from credibly.review import Review
    from credibly.review.issues import LabelIssues

ENDINGS = {"csv": ".csv", "label-studio": ".json", "fiftyone": ".json"}
MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Options(Scanned):
    """Rank labels that are probably wrong, and estimate the number of errors.

    PREDICTIONS must hold the truth, and calibrated probabilities of a model that was not trained on
    these rows. A label is missing (annotated absent, probably present), extra (annotated present,
    probably absent) or unknown (not annotated, probably present). The most certain come first. The
    queue is written as CSV with an empty column `decision`, as tasks for Label Studio or as labels
    for FiftyOne. --reviews applies the decisions of reviewers and writes the corrected predictions.

    Examples:
      credibly review predictions.parquet --top 200 --out queue.csv
      credibly review predictions.parquet --format label-studio --root /images --out tasks.json
      credibly review predictions.parquet --reviews queue.csv --out corrected.parquet

    Args:
        predictions: predictions file, or folder of shards
        top: maximum number of labels in the queue
        kinds: kinds of labels to list, separated by commas
        min_probability: minimum probability that a listed label is wrong
        out: file to write; - prints it
        format: format of the queue and of --reviews
        root: with label-studio: address of the folder with the items
        suffix: with label-studio: ending of the items, e.g. .jpg
        reviews: reviewed queue to apply
        queue: with fiftyone and --reviews: the queue as CSV
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
    elif options.reviews is not None:
        raise input_error("--out must be given with --reviews: the predictions file to write.")
    if options.reviews is not None:
        from credibly.predictions import Predictions

        return _apply(options, Predictions.read(options.predictions, partial=options.partial))
    return _review(options)


def _review(options: Options) -> None:
    from credibly.checks import nearest
    from credibly.review import label_issues
    from credibly.review.noise_model import KINDS

    for kind in options.kinds:
        if kind not in KINDS:
            raise input_error(f"--kinds has no entry {kind!r}. {nearest(kind, KINDS)}")
    kinds: Any = options.kinds
    issues = label_issues(
        options.predictions,
        top=options.top,
        kinds=kinds,
        min_probability=options.min_probability,
        partial=options.partial,
        executor=options.engine,
    )
    if options.out is not None:
        _write(options, issues)
    terminal.tell(options, {"out": options.out, **issues.to_dict()}, lambda: _show(options, issues))


def _write(options: Options, issues: LabelIssues) -> None:
    assert options.out is not None
    if options.format == "csv":
        issues.write(options.out)
    elif options.format == "label-studio":
        from credibly.review import label_studio

        label_studio.write_tasks(issues, options.out, root=options.root, suffix=options.suffix)
    else:
        from credibly.review import fiftyone

        fiftyone.write_labels(issues, options.out)


def _apply(options: Options, predictions: Predictions) -> None:
    from credibly.review import apply_reviews

    reviews = _reviews(options)
    corrected = apply_reviews(predictions, reviews)
    changed = len(reviews)
    if predictions.targets is not None and corrected.targets is not None:
        changed = int((predictions.targets != corrected.targets).sum())
    assert options.out is not None
    corrected.write(options.out)
    terminal.tell(
        options,
        {"out": options.out, "reviews": len(reviews), "changed": changed},
        f"{len(reviews):,} decisions, of which {changed:,} change the truth, written to "
        f"{options.out}",
    )


def _reviews(options: Options) -> list[Review]:
    from credibly.review import read_queue, read_reviews

    assert options.reviews is not None
    if options.format == "label-studio":
        from credibly.review import label_studio

        return label_studio.read_reviews(options.reviews)
    if options.format == "fiftyone":
        from credibly.review import fiftyone

        if options.queue is None:
            raise input_error("--format fiftyone with --reviews needs --queue, the queue as CSV.")
        return fiftyone.read_reviews(options.reviews, read_queue(options.queue))
    return read_reviews(options.reviews)


def _show(options: Options, issues: LabelIssues) -> None:
    from credibly.notebook import counted

    shown = issues.issues[:MOST_SHOWN]
    rows = [
        [each.id, each.label, each.kind, each.given, each.probability, each.error_probability]
        for each in shown
    ]
    columns = ["id", "label", "kind", "truth", "probability", "error probability"]
    terminal.print_text(
        f"{issues.wrong:,} {'label is' if issues.wrong == 1 else 'labels are'} probably wrong."
    )
    if shown:
        title = f"the first {len(shown)} of {counted(len(issues), 'label')} to review"
        terminal.print_table(title, columns, rows)
    worst = sorted(issues.errors, key=lambda each: -each.expected)[:MOST_SHOWN]
    if worst:
        rows = [
            [each.label, each.known, f"{each.expected:.1f}", f"{each.low:.1f} – {each.high:.1f}"]
            for each in worst
        ]
        columns = ["label", "known", "errors, estimated", "95 % interval"]
        terminal.print_table("labels with the most errors", columns, rows)
    if issues.total is not None:
        total = issues.total
        terminal.print_text(
            f"About {total.expected:,.1f} of {total.known:,} known labels are estimated to be "
            f"wrong ({total.low:,.1f} to {total.high:,.1f}, 95 %). Mistakes of the model count "
            "too: to check the estimate, review a random sample."
        )
    if options.out is not None:
        terminal.print_text(f"{counted(len(issues), 'label')} written to {options.out}")
