"""``credibly report``: one self-contained page about predictions."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import Partial, Printed, WithTexts, input_error, option
from credibly.cli.terminal import progress, tell


@dataclass(frozen=True, kw_only=True)
class Options(WithTexts, Partial, Printed):
    """Write an HTML report about predictions.

    The page shows a verdict, charts, intervals and every label. It needs no network.

    Examples:
      credibly report runs/spa/predictions.parquet --out report.html
      credibly report before.parquet after.parquet --out report.html
      credibly report runs/spa/predictions.parquet --images 50 --image-folder photos

    Args:
        predictions: predictions files with the same labels
        out: file to write; - prints the page
        resamples: number of bootstrap resamples per interval
        seed: seed of the bootstrap
        images: number of worst rows to show per file; needs --image-folder or --texts
        image_folder: folder of images; ids are their names; small copies become part of the page
    """

    predictions: tuple[str, ...] = option(positional=True)
    out: str = option("report.html", stdout=".html")
    resamples: int = option(200, between=(2, 100_000))
    seed: int = option(0, between=(0, 2**63 - 1))
    images: int | None = option(None, between=(1, 1000), metavar="N")
    image_folder: str | None = option(None, metavar="DIR")


def run(options: Options) -> None:
    from credibly.files import check_out

    check_out(options.out, (), inputs=options.predictions)
    from credibly.app import report

    if options.images is not None and options.image_folder is None and options.texts is None:
        raise input_error(
            "--images needs --image-folder DIR for images, or --texts DATA for texts."
        )
    texts = None
    if options.texts:
        from credibly.data.loading import load_texts
        from credibly.predictions import Dataset

        labels = Dataset(options.predictions[0], partial=options.partial).labels
        texts = load_texts(options.texts, labels, text=options.text)
    with progress(options.out, total=1, quiet=options.silent) as advance:
        page = report.write(
            options.predictions,
            options.out,
            resamples=options.resamples,
            seed=options.seed,
            partial=options.partial,
            texts=texts,
            images=options.image_folder,
            examples=16 if options.images is None else options.images,
            advance=advance,
        )
    document = {"report": str(page), "bytes": page.stat().st_size}
    tell(options, document, f"{page}: open it in any browser; it needs no network.")
