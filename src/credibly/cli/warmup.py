"""``credibly warmup``: compile ahead of the first use."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import Printed
from credibly.cli.terminal import tell


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Compile the numerical loops ahead of their first use.

    Losses, metrics and search use compiled code. It is stored in NUMBA_CACHE_DIR if that is set,
    else in your cache folder. For a container image, set NUMBA_CACHE_DIR to a folder of the image
    and run this command while the image is built.

    Examples:
      credibly warmup
      credibly warmup --losses spa+lpr

    Args:
        losses: names of losses, separated by commas (default: all losses with compiled loops)
    """

    losses: str | None = None


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
    result = warm_up(progress=show, **arguments)
    tell(options, result.to_dict(), str(result))
