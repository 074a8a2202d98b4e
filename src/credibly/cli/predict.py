"""``credibly predict RUN DATA``: predictions of a trained run, in parts if there are many."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from credibly.cli.command import Printed, option
from credibly.cli.reader_options import reader_options, with_reader_options
from credibly.cli.tables import progress, tell


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Printed):
    """Predict with a trained run: calibrated probabilities, scores, and the truth where known.

    OUT is a .parquet file, which every command reads, a .csv file with the same columns, or a
    folder of one part per shard, which every command reads as one file.
    Under torchrun each process writes its share of the shards; shards that exist are skipped.

    Examples:
      credibly predict runs/digits digits --part test --out predictions.parquet
      torchrun --nproc-per-node 4 -m credibly predict runs/coco coco:data --shards 16 --out parts/
      credibly predict runs/x new.csv --format lists --out submission.csv
      credibly predict runs/auto rows.csv --members members/ --out predictions.parquet
      credibly predict model.onnx tables/ --engine spark --out parts/
    """

    folder: str = option(
        help="folder of a finished run, or its .onnx file", positional=True, metavar="RUN"
    )
    data: str = option(help="what to predict: a name, a file, or KIND:PATH", positional=True)
    out: str = option(
        help="a .parquet or .csv file (- prints CSV), or a folder for shards", stdout=".csv"
    )
    part: str = option("all", help="which rows", choices=("all", "train", "calibration", "test"))
    shards: int | None = option(
        None, help="number of shards (default: one per process)", between=(1, 99_999)
    )
    format: str = option(
        "predictions",
        help="of a .csv file: predictions, as in Parquet; wide: ids and probabilities; lists: ids "
        "and label sets; both with the headers of the training file",
        choices=("predictions", "wide", "lists"),
    )
    members: str | None = option(
        None, help="folder for the predictions of each member, before the calibrator"
    )
    allow_python: bool = option(False, help="import the code that a python: run names")
    skip_bad_images: bool = option(False, help="leave out images that do not decode")
    engine: str = option(
        "local",
        help="local: this machine; spark: a cluster, which predicts Parquet tables of features",
        choices=("local", "spark"),
    )


# The labels are those of the run.
Options: Any = with_reader_options(PredictOptions, leave_out=("labels",))


def run(options: PredictOptions) -> None:
    from credibly.checks import InputError, out_can_be_written

    if options.engine == "spark" or options.folder.endswith(".onnx"):
        if options.members is not None or options.format != "predictions":
            raise InputError("--members and --format take the folder of a run and --engine local.")
        return _predict_dataset(options)
    out_can_be_written(options.out, folder=not options.out.endswith((".parquet", ".csv")))
    from credibly import train
    from credibly.notebook import counted

    if options.members is not None:
        out_can_be_written(options.members, folder=True)
    process, processes = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    done = train.load(options.folder, allow_python=options.allow_python)
    given = reader_options(options)
    rows = done.read(options.data, skip_bad_images=options.skip_bad_images, **given)
    done.check_part(rows, options.part)
    rows = rows.part(options.part)
    with progress("predicting", total=len(rows), quiet=options.quiet) as advance:
        written = train.predict_to(
            done,
            rows,
            options.out,
            shards=options.shards or processes,
            process=process,
            processes=processes,
            format=options.format,
            advance=advance,
        )
    if options.members is not None and process == 0:
        written += train.predict_members_to(done, rows, options.members)
    if process == 0:
        document = {"rows": len(rows), "written": [str(path) for path in written]}
        new = counted(len(written), "file")
        text = f"{counted(len(rows), 'row')} in {options.out}; {new} written now."
        tell(options, document, text)


def _predict_dataset(options: PredictOptions) -> None:
    """Predict tables with an exported model; a run is exported first."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from credibly.notebook import counted
    from credibly.workflows import predict_dataset

    with TemporaryDirectory() as folder:
        model = Path(options.folder)
        if model.suffix != ".onnx":
            from credibly import train

            model = Path(folder) / "model.onnx"
            train.export(train.load(options.folder, allow_python=options.allow_python), model)
        given = reader_options(options)
        result = predict_dataset(model, options.data, options.out, executor=options.engine, **given)
    tell(
        options,
        vars(result),
        f"{counted(result.rows, 'row')} in {result.out}, {counted(result.files, 'file')}.",
    )
