"""``credibly serve``: the web app and its REST API on this machine."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from credibly.cli.command import File, Partial, WithTexts, input_error, option

if TYPE_CHECKING:
    from credibly.app.server.guard import Guard


@dataclass(frozen=True, kw_only=True)
class Options(WithTexts, Partial):
    """Start the web app on this machine.

    In the app you explore and search rows, review labels, choose thresholds and compare runs.

    Examples:
      credibly serve                                                  (drop a file into the page)
      credibly serve runs/spa/predictions.parquet --images photos
      credibly serve before.parquet after.parquet --port 9000
      credibly serve runs                                             (compares all runs below)
      credibly serve --run runs/spa                                   (try it on new rows)
      credibly serve --map map.json                                   (POST scores to /api/scores)
      credibly serve runs/spa/predictions.parquet --annotate corrections.jsonl

    Args:
        predictions: predictions files, runs, or a folder of runs; several are compared. A CSV,
            Arrow or numpy file opens the import page, as does the command without a file
        images: folder of images; ids are their names
        run: a trained run to predict new rows with; adds the page /try and /api/predict
        map: a saved map from scores to probabilities; adds /api/scores
        annotate: allow review; append the decisions to this file (.jsonl)
        port: port; 0 takes a free one
        host: address to listen on; other machines can connect with any but the default
        allow_host: another host name that the server answers to
        root_path: prefix that a proxy adds to every path, e.g. /credibly
        workers: number of processes; import and review need 1
        joint_from: held-out predictions to fit the joint model on, or the .json file that `joint
            fit` wrote
        quiet: print only the address of the server
    """

    predictions: tuple[str, ...] = option((), positional=True)
    images: str | None = None
    run: str | None = None
    map: File | None = None
    annotate: File | None = None
    port: int = option(8000, between=(0, 65_535))
    host: str = "127.0.0.1"
    allow_host: tuple[str, ...] = option((), metavar="NAME")
    root_path: str = ""
    workers: int = option(1, between=(1, 64))
    joint_from: File | None = None
    quiet: bool = False


def run(options: Options) -> None:
    from credibly.app.server.connections import Server, fork_workers
    from credibly.app.server.guard import EVERYWHERE, Counters
    from credibly.checks import InputError

    if not options.host:
        raise InputError("`host` must not be empty; 0.0.0.0 listens on every address.")
    local = ("127.0.0.1", "localhost", "::1")
    hosts = (*local, options.host, *options.allow_host)
    if options.host in EVERYWHERE:
        hosts = (*hosts, socket.gethostname())
    if options.host not in local:
        print(
            f"credibly serve: warning: other machines can connect to {options.host}, and there is "
            "no password. The server answers to "
            f"{', '.join(hosts[3:])}{' and any IP address' if options.host in EVERYWHERE else ''}. "
            "Add host names with --allow-host.",
            file=sys.stderr,
        )
    with _listener(options.host, options.port) as listener:
        number, tell = 0, lambda: None
        counters = Counters(options.workers)
        if options.workers > 1:
            number, tell = fork_workers(options.workers)
        counters.start(number)
        app = _app(options, hosts)
        app.counters = counters
        where = f"http://{options.host}:{listener.getsockname()[1]}{app.root_path}{app.first_page}"

        def ready() -> None:
            if number == 0:
                print(f"{where}  (stop with Ctrl-C)", flush=True)
            tell()

        log_level = "warning" if options.quiet else "info"
        Server(app, log_level=log_level, owns_process=True, ready=ready).run(sockets=[listener])


def _app(options: Options, hosts: tuple[str, ...]) -> Guard:
    from credibly.app.server import create_app

    joint = None
    if options.joint_from is not None:
        from credibly.retrieve.joint.model_selection import joint_from

        joint = joint_from(options.joint_from, partial=options.partial)
    return create_app(
        options.predictions,
        images=options.images,
        run=options.run,
        texts=options.texts,
        text=options.text,
        hosts=hosts,
        partial=options.partial,
        joint=joint,
        annotate=options.annotate,
        map=options.map,
        root_path=options.root_path,
        workers=options.workers,
    )


def _listener(host: str, port: int) -> socket.socket:

    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # early connections wait until the server is warm
    except OSError as error:
        listener.close()
        raise input_error(
            f"port {port} on {host} cannot be used: {error.strerror}. Choose another port with "
            "--port; 0 takes a free one."
        ) from error
    return listener
