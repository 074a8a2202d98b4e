"""``credibly warmup``: compile ahead of the first use."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import option


@dataclass(frozen=True, kw_only=True)
class Options:
    """Compile the loops of losses, metrics and search now, so that no first step waits for it.

    The result is kept in NUMBA_CACHE_DIR if that is set, else in the folder of your caches. In a
    container image, set NUMBA_CACHE_DIR to a folder of the image and run this when it is built.

    Examples:
      credibly warmup
      credibly warmup --losses spa+lpr
    """

    losses: str | None = option(None, help="comma-separated losses (default: all with loops)")
    double: bool = option(False, help="compile losses for float64 too")
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print nothing but errors")


def run(options: Options) -> int:
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
    if options.json:
        import json

        print(json.dumps(result.to_dict(), indent=2))
    elif not options.quiet:
        print(result)
    return 0
