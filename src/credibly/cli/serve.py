"""``credibly serve``: the web app and its REST API on this machine."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from credibly.cli.command import option


@dataclass(frozen=True, kw_only=True)
class Options:
    """Start the web app on this machine: search, judge labels, spend a label budget.

    Examples:
      credibly serve                                                  (drop a file into the page)
      credibly serve runs/spa/predictions.parquet --images photos
      credibly serve before.parquet after.parquet --port 9000
      credibly serve runs                                             (compares all runs below)
      credibly serve runs/spa/predictions.parquet --run runs/spa     (try it on new rows)
      credibly serve runs/spa/predictions.parquet --annotate corrections.jsonl
    """

    predictions: tuple[str, ...] = option(
        (),
        help="predictions files, runs or a folder of runs; several are compared. A CSV, Arrow or "
        "numpy file opens on the import page; without a file, drop one there",
        positional=True,
    )
    images: str | None = option(None, help="folder of images named by row ids")
    run: str | None = option(
        None, help="a trained run to try on new rows: opens /try and /api/predict"
    )
    annotate: str | None = option(
        None, help="file that decisions of reviewers are appended to (.jsonl)", metavar="FILE"
    )
    texts: str | None = option(None, help="data that hold the texts of the rows", metavar="DATA")
    text: tuple[str, ...] | None = option(None, help="with --texts: the column of the texts")
    port: int = option(8000, help="port; 0 takes a free one", between=(0, 65_535))
    host: str = option("127.0.0.1", help="address to listen on; others can reach it if changed")
    joint_from: str | None = option(
        None,
        help="held-out predictions to fit joint probabilities on, or a .json of `joint fit`",
        metavar="FILE",
    )
    partial: bool = option(False, help="read a folder although some of its shards are missing")
    quiet: bool = option(False, help="print only where the server is")


def run(options: Options) -> int:
    import socket

    from credibly.app.server import create_app, server
    from credibly.checks import InputError

    joint = None
    if options.joint_from is not None:
        from credibly.workflows.joint_models import joint_from

        joint = joint_from(options.joint_from, partial=options.partial)
    local = ("127.0.0.1", "localhost", "::1")
    if options.host not in local:
        print(
            f"credibly serve: warning: {options.host} can be reached by others; there is no "
            "password. Use 127.0.0.1 unless you mean it.",
            file=sys.stderr,
        )
    app = create_app(
        options.predictions,
        images=options.images,
        run=options.run,
        texts=options.texts,
        text=options.text,
        hosts=(*local, options.host),
        partial=options.partial,
        joint=joint,
        annotate=options.annotate,
    )
    listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen()  # who connects at once waits until the server is warm
    except OSError as error:
        listener.close()
        raise InputError(
            f"port {options.port} on {options.host} cannot be used; {error.strerror}. "
            "Choose another with --port, or 0 for any free one."
        ) from error
    port = listener.getsockname()[1]

    def ready() -> None:
        print(f"http://{options.host}:{port}{app.first_page}  (stop with Ctrl-C)", flush=True)

    log_level = "warning" if options.quiet else "info"
    server(app, log_level=log_level, owns_process=True, ready=ready).run(sockets=[listener])
    return 0
