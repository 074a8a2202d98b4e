"""``credibly check PATH``: verify files and their checksums."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import File, Printed, option
from credibly.cli.terminal import print_json, print_table, print_text

DAMAGED = 1


@dataclass(frozen=True, kw_only=True)
class Options(Printed):
    """Verify files, or test predictions for drift.

    The command compares checksums, reads every value, counts the shards and compares their ids. The
    exit code is 0 if nothing is wrong, 1 if something is wrong, and 2 if PATH cannot be checked.

    With --against, the command tests for drift instead. It compares probabilities and label rates
    with those of reference rows, such as the rows that the calibrator was fitted on. The exit code
    is 1 if they differ.

    Examples:
      credibly check predictions.parquet
      credibly check runs/digits
      credibly check new.parquet --against calibration.parquet

    Args:
        path: a .parquet, .safetensors or .json file, a folder of shards, a run or a comparison
        against: test for drift; FILE holds the predictions of the reference rows
        false_alarms: probability of a false alarm, with --against
    """

    path: str = option(positional=True)
    against: File | None = None
    false_alarms: float = 0.01


def run(options: Options) -> int:
    from credibly.notebook import counted
    from credibly.workflows import check_files

    if options.against is not None:
        return _compare_rows(options)
    found = check_files(options.path)
    if options.json:
        print_json(found.to_dict())
        return 0 if found.sound else DAMAGED
    shown = [file for file in found.files if not (options.quiet and file.sound)]
    if shown:
        verdicts = {True: "sound", False: "wrong"}
        rows = [[file.path, file.checksum or "–", verdicts[file.sound]] for file in shown]
        print_table("", ["file", "checksum", "result"], rows)
    for file in shown:
        if not file.sound:
            reason = file.problem or "the file was changed after it was written."
            print_text(f"{file.path}: {reason}")
    if not options.quiet:
        verdict = "nothing is wrong" if found.sound else "see above what is wrong"
        print_text(f"{counted(len(found.files), 'file')} checked: {verdict}.")
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
