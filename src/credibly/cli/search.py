"""``credibly search PREDICTIONS QUERY``: rows by labels wanted and unwanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, WithTexts, input_error, option

if TYPE_CHECKING:
    from credibly.retrieve import Joint
    from credibly.retrieve.answer import Answer
    from credibly.retrieve.joint.pairs import Together

_MOST_ROWS = 100_000


SHOWN = 80
"""Characters of a text in a table."""


@dataclass(frozen=True, kw_only=True)
class Options(WithTexts, Scanned):
    """Search predictions for labels that you want and labels that you do not want.

    A query is '+fork +apple -knife' or any boolean expression: '(dog | cat) & !beach'. A word
    without a sign is wanted. Names with spaces need quotes. A query must not begin with '-'; write
    '!knife' instead of '-knife'. The most probable rows come first, and the command prints the
    expected number of hits.

    Examples:
      credibly search predictions.parquet '+fork +apple -"dining table"' --top 20
      credibly search predictions.parquet '(dog | cat) & !beach' --explain
      credibly search test.parquet '+dog +cat' --joint --joint-from held-out.parquet
      credibly search test.parquet '+dog' --joint --joint-from joint.json --also 10
      credibly search parts/ '+dog -beach' --engine spark

    Args:
        predictions: predictions file, or folder of shards
        query: labels that you want and do not want, e.g. '+fork -knife'
        top: number of rows to show
        joint: use joint probabilities, which account for labels that depend on each other
        joint_from: with --joint: held-out predictions to fit the joint model on, or the .json file
            that `joint fit` wrote (default: PREDICTIONS.joint.json if it exists, else the truth of
            PREDICTIONS)
        also: also list this many labels that often appear with the query
        images: folder of the images; ids are their names
        explain: also print the conditions and the SQL
    """

    predictions: str = option(positional=True)
    query: str = option(positional=True)
    top: int = option(20, between=(1, 10**9))
    joint: bool = False
    joint_from: File | None = None
    also: int | None = option(None, between=(1, 1000))
    images: str | None = option(None, metavar="DIR")
    explain: bool = False


def run(options: Options) -> int | None:
    from credibly.child_processes import watched_under_memory_limit

    ended = watched_under_memory_limit()  # DuckDB aborts if it cannot allocate memory
    return _search(options) if ended is None else ended


def _search(options: Options) -> None:
    from credibly.retrieve import search

    joint = _joint(options)
    answer = search(
        options.predictions,
        options.query,
        top=options.top,
        executor=options.engine,
        joint=joint,
        partial=options.partial,
    )
    if options.images:
        answer = answer.with_images(options.images)
    if options.texts:
        answer = answer.with_texts(texts_of(options.predictions, options.texts, options.text))
    if options.json:
        document = answer.to_dict()
        if options.explain:
            document["sql"] = list(answer.sql)
        if options.also:
            document["also"] = [
                {**asdict(each), "lift": each.lift} for each in _together(options, joint)
            ]
        terminal.print_json(document)
        return
    if answer.hits:
        _print_hits(answer)
    _print_summary(answer, joint)
    if options.also:
        _print_together(_together(options, joint))
    if options.explain:
        _print_explanation(answer)


def _joint(options: Options) -> Joint | None:
    import sys
    from pathlib import Path

    from credibly.retrieve.joint.model_selection import joint_from

    if not options.joint:
        if options.joint_from:
            raise input_error("`--joint-from` must come with `--joint`; add it.")
        return None
    beside = Path(options.predictions + ".joint.json")
    source = Path(options.joint_from or (beside if beside.exists() else options.predictions))
    own = source == Path(options.predictions)
    joint = joint_from(source, partial=options.partial)
    if own and not options.quiet:
        print(
            f"credibly search: the joint model was fitted on the truth of {source} itself, so its "
            "expected hits look better there than on new rows. Give other rows with --joint-from.",
            file=sys.stderr,
        )
    return joint


def _together(options: Options, joint: Joint | None) -> list[Together]:
    """Return the labels most probable given the query, over all rows (at most 100,000, drawn)."""
    import numpy as np

    from credibly.predictions import Predictions
    from credibly.retrieve.joint.pairs import seen_together

    scan = Predictions.scan(options.predictions, partial=options.partial)
    rows = None
    if scan.num_rows > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(scan.num_rows, _MOST_ROWS, replace=False))
    scan.check_dense("`--also`")
    read = scan.read(rows=rows)
    listed = seen_together(
        options.query, read.probabilities, read.labels, joint=joint, targets=read.targets
    )
    return listed[: options.also]


def _print_together(listed: list[Together]) -> None:
    columns = ["given the query, also", "probability", "in any row", "times"]
    rows: list[list[object]] = [
        [each.label, _shown(each.share), _shown(each.overall), f"{each.lift:.2f}"]
        for each in listed
    ]
    if any(each.known_real is not None for each in listed):
        columns += ["expected", "real"]
        for row, each in zip(rows, listed, strict=True):
            row += [f"{each.known_expected:.1f}", each.known_real]
    terminal.print_table("", columns, rows)


def _print_hits(answer: Answer) -> None:
    hits, said = answer.hits, {True: "hit", False: "no", None: "?"}
    columns: dict[str, Sequence[object]] = {
        "": range(1, len(hits) + 1),
        "id": [hit.id for hit in hits],
        "probability": [_shown(hit.probability) for hit in hits],
    }
    for name in hits[0].conditions:
        columns[name] = [_shown(hit.conditions[name]) for hit in hits]
    if any(hit.truth is not None for hit in hits):
        columns["truth"] = [said[hit.truth] for hit in hits]
    if any(hit.path is not None for hit in hits):
        columns["path"] = [hit.path or "" for hit in hits]
    if any(hit.text is not None for hit in hits):
        columns["text"] = [_start(hit.text or "") for hit in hits]
    terminal.print_table("", list(columns), list(zip(*columns.values(), strict=True)))


def _start(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def texts_of(predictions: str, data: str, columns: tuple[str, ...] | None) -> dict[str, str]:
    """Return the texts of rows by id, from the data of the predictions."""
    from credibly.data.loading import load_texts
    from credibly.predictions import Predictions

    return load_texts(data, Predictions.scan(predictions).labels, text=columns)


def _print_summary(answer: Answer, joint: Joint | None) -> None:
    from credibly.notebook import counted

    if answer.contradiction:
        terminal.print_text(f"{answer.query} contradicts itself: no row can satisfy it.")
        return
    how = "" if joint is None else ", labels taken together"
    terminal.print_text(
        f"{answer.query}: {_shown(answer.expected_hits)} hits expected in "
        f"{counted(answer.rows, 'row')}{how}"
    )
    if answer.known_rows:
        terminal.print_text(
            f"where the truth is known ({counted(answer.known_rows, 'row')}): "
            f"{_shown(answer.known_expected)} expected, {answer.known_hits:,} real"
        )


def _print_explanation(answer: Answer) -> None:
    query = answer.query
    terminal.print_text(f"\nwanted: {', '.join(query.wanted) or '—'}")
    terminal.print_text(f"unwanted: {', '.join(query.unwanted) or '—'}")
    terminal.print_text("\nThe ranking:\n" + answer.sql[0])
    terminal.print_text("\nThe totals:\n" + answer.sql[1])


def _shown(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
