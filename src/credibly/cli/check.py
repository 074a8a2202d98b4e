"""``credibly check PATH``: are the files what was written?"""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import option

DAMAGED = 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """Verify predictions, a folder of parts, a run or a comparison, and say what is wrong.

    Compares checksums, reads every value, counts the parts and compares their ids; the files of a
    run must fit each other. Files written before checksums were introduced are read as well and
    said to have none. The exit code is 0 if all is sound, 1 if something is wrong, 2 if PATH
    cannot be checked.

    Examples:
      credibly check predictions.parquet
      credibly check runs/digits
    """

    path: str = option(
        help="a .parquet, .safetensors or .json file, a folder of parts, a run, a comparison",
        positional=True,
        metavar="PATH",
    )
    json: bool = option(False, help="print the result as JSON")
    quiet: bool = option(False, help="print only what is wrong")


def run(options: Options) -> int:
    from credibly.cli.tables import print_json, print_table, print_text
    from credibly.workflows import check_files

    found = check_files(options.path)
    if options.json:
        print_json(found.to_dict())
        return 0 if found.sound else DAMAGED
    shown = [file for file in found.files if not (options.quiet and file.sound)]
    if shown:
        rows = [[file.path, file.checksum or "–", _verdict(file.sound)] for file in shown]
        print_table("", ["file", "checksum", "result"], rows)
    for file in shown:
        if not file.sound:
            reason = file.problem or "its bytes are not those that were written."
            print_text(f"{file.path}: {reason}")
    if not options.quiet:
        print_text(_summary(found.kind, len(found.files), found.sound))
    return 0 if found.sound else DAMAGED


def _verdict(sound: bool) -> str:
    return "sound" if sound else "wrong"


def _summary(kind: str, count: int, sound: bool) -> str:
    checked = f"{kind}: {count} {'entry' if count == 1 else 'entries'} checked"
    return f"{checked}; nothing is wrong." if sound else f"{checked}; see above what is wrong."
