"""``credibly check PATH``: are the files what was written?"""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import Printed, option
from credibly.cli.tables import print_json, print_table, print_text

DAMAGED = 1


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Verify predictions, a folder of shards, a run or a comparison, and say what is wrong.

    The command compares checksums, reads every value, counts the shards and compares their ids. It
    says so if a file has no checksum. The exit code is 0 if all is well, 1 if something is wrong, 2
    if PATH cannot be checked.

    With --against, it tests instead whether the rows look like reference rows, such as those that
    the calibration was fitted on: probabilities and label rates. The exit code is 1 if they differ.

    Examples:
      credibly check predictions.parquet
      credibly check runs/digits
      credibly check new.parquet --against calibration.parquet
    """

    path: str = option(
        help="a .parquet, .safetensors or .json file, a folder of shards, a run, a comparison",
        positional=True,
        metavar="PATH",
    )
    against: str | None = option(
        None, help="predictions of reference rows, to test for drift", metavar="FILE"
    )
    false_alarms: float = option(0.01, help="probability of a false alarm of that test")


def run(options: Options) -> int:
    from credibly.workflows import check_files

    if options.against is not None:
        return _compare_rows(options)
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


def _compare_rows(options: Options) -> int:
    from dataclasses import asdict

    from credibly.workflows import drift

    assert options.against is not None
    found = drift(options.path, options.against, false_alarms=options.false_alarms)
    if options.json:
        print_json({"drifted": found.drifted, **asdict(found)})
        return DAMAGED if found.drifted else 0
    rows = [
        [each.label, each.mean_new, each.mean_reference, each.score_p, each.rate_p]
        for each in found.labels
        if each.drifted
    ]
    if rows:
        columns = ["label", "mean, new", "mean, reference", "p, probabilities", "p, rate"]
        print_table("", columns, rows)
    print_text(str(found))
    return DAMAGED if found.drifted else 0


def _verdict(sound: bool) -> str:
    return "sound" if sound else "wrong"


def _summary(kind: str, count: int, sound: bool) -> str:
    checked = f"{kind}: {count} {'entry' if count == 1 else 'entries'} checked"
    return f"{checked}; nothing is wrong." if sound else f"{checked}; see above what is wrong."
