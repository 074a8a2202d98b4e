"""``credibly audit LOSS``: check whether a loss is proper, and show its link."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import Printed, option
from credibly.cli.terminal import tell


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Check whether a loss is proper, and show its link.

    Examples:
      credibly audit spa
      credibly audit 'asl(detach_weight=true)' --out asl.svg

    Args:
        loss: name of a loss, e.g. spa, asl, 'focal(gamma_neg=3)'
        num_labels: number of labels, for losses that need it; an audit takes rows of three labels
        average_size: average number of labels per row, for losses that need it
        out: file to draw the link and the partial losses in (.svg, .png, .pdf)
    """

    loss: str = option(positional=True)
    num_labels: int = option(3, between=(1, 10_000))
    average_size: float = 2.0
    out: str | None = None


def run(options: Options) -> None:
    from dataclasses import asdict

    from credibly.files import check_out
    from credibly.names import check_loss

    check_loss(options.loss)
    if options.out is not None:
        check_out(options.out, (".svg", ".png", ".pdf"))
    from credibly.losses import audit, from_name

    loss = from_name(
        options.loss, num_labels=options.num_labels, num_rows=1, average_size=options.average_size
    )
    result = audit(loss)
    tell(options, asdict(result), str(result))
    if options.out is not None:
        from pathlib import Path

        from credibly import plot
        from credibly.files import atomic_path

        figure = plot.link(loss).get_figure(root=True)
        assert figure is not None
        with atomic_path(options.out) as beside:
            figure.savefig(beside, format=Path(options.out).suffix.lstrip(".") or "svg")
