"""``credibly search PREDICTIONS QUERY``: rows by labels wanted and unwanted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from credibly.cli import terminal
from credibly.cli.command import File, Scanned, WithTexts, input_error, option

if TYPE_CHECKING:
    from credibly.retrieve import Joint
    from credibly.retrieve.answer import Answer
    from credibly.types import JsonObject

SHOWN = 80
"""Characters of a text in a table."""


@dataclass(frozen=True, kw_only=True)
class Options(WithTexts, Scanned):
    """Search for rows by labels that you want or do not want.

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
        explain: also print the SQL
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
        from credibly.data.loading import load_texts
        from credibly.predictions import Dataset

        labels = Dataset(options.predictions, partial=options.partial).labels
        texts = load_texts(options.texts, labels, text=options.text)
        answer = answer.with_texts(texts if options.json else {k: _start(texts[k]) for k in texts})
    also = []
    if options.also:
        from credibly.retrieve.joint.pairs import often_together

        also = often_together(options.predictions, options.query, joint, partial=options.partial)
        also = [{**asdict(each), "lift": each.lift} for each in also[: options.also]]
    if not options.json:
        return _show(options, answer, also)
    document = answer.to_dict()
    if options.explain:
        document["sql"] = list(answer.sql)
    if options.also:
        document["also"] = also
    return terminal.print_json(document)


def _joint(options: Options) -> Joint | None:
    from pathlib import Path

    from credibly.retrieve.joint.model_selection import joint_from

    if not options.joint:
        if options.joint_from:
            raise input_error("--joint-from needs --joint; add it.")
        return None
    beside = Path(options.predictions + ".joint.json")
    source = options.joint_from or (beside if beside.exists() else options.predictions)
    if Path(source) == Path(options.predictions) and not options.quiet:
        terminal.complain(
            f"credibly search: warning: the joint model is fitted on the truth of {source} itself. "
            "Its expected hits look better here than on new rows. Give other rows: --joint-from."
        )
    return joint_from(source, partial=options.partial)


def _start(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _show(options: Options, answer: Answer, also: list[JsonObject]) -> None:
    from credibly.notebook import counted

    if answer.hits:
        columns, rows = answer.table()
        ranked = [[rank, *row] for rank, row in enumerate(rows, start=1)]
        terminal.print_table("", ["", *columns], ranked)
    text = f"{answer.query} contradicts itself: no row can match it."
    if not answer.contradiction:
        rows = counted(answer.rows, "row")
        text = f"{answer.query}: {answer.expected_hits:,.1f} hits expected among {rows}."
        if answer.known_rows:
            text += (
                f" Where the truth is known ({counted(answer.known_rows, 'row')}), "
                f"{answer.known_expected or 0:,.1f} are expected and {answer.known_hits:,} are "
                "there."
            )
    terminal.print_text(text)
    if also:
        names = ("label", "share", "overall", "lift", "known_expected", "known_real")
        columns = ("label", "probability", "in any row", "times", "expected rows", "real rows")
        rows = [[each[name] for name in names] for each in also]
        terminal.print_table("labels that appear with the query", columns, rows)
    if options.explain:
        sql = answer.sql or ("No SQL was run: the rows were read in batches.",)
        terminal.print_text("\n" + "\n\n".join(sql))
