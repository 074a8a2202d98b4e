"""``credibly warmup``: compile ahead of the first use."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import Printed, option
from credibly.cli.tables import tell


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Compile the loops of losses, metrics and search now, so that the first use does not wait.

    The result is kept in NUMBA_CACHE_DIR if that is set, else in your cache folder. In a
    container image, set NUMBA_CACHE_DIR to a folder of the image and run this when it is built.

    Examples:
      credibly warmup
      credibly warmup --losses spa+lpr
    """

    losses: str | None = option(None, help="comma-separated losses (default: all with loops)")
    double: bool = option(False, help="compile losses for float64 too")


def run(options: Options) -> None:
    from credibly.names import check_loss

    names = None if options.losses is None else options.losses.split(",")
    for name in names or ():
        check_loss(name)
    import sys

    from credibly.workflows import warm_up

    def show(part: str) -> None:
        if not options.quiet and sys.stderr.isatty():
            print(f"compiling: {part}", file=sys.stderr)

    arguments = {} if names is None else {"losses": names}
    result = warm_up(double=options.double, progress=show, **arguments)
    tell(options, result.to_dict(), str(result))
