"""``credibly predict RUN DATA``: predictions of a trained run, in parts if there are many."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from credibly.cli.command import Printed, given, input_error, option, with_reader_options
from credibly.cli.terminal import progress, tell


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Printed):
    """Predict new rows with a trained run.

    OUT gets the calibrated probabilities, the scores and, if it is known, the truth. It is a
    .parquet file, a .csv file with the same columns, or a folder with one file per shard. Every
    command reads such a folder like one file. With torchrun, each process writes some of the
    shards. Shards that exist are skipped.

    Examples:
      credibly predict runs/digits digits --part test --out predictions.parquet
      torchrun --nproc-per-node 4 -m credibly predict runs/coco coco:data --shards 16 --out parts/
      credibly predict runs/x new.csv --format lists --out submission.csv
      credibly predict model.onnx tables/ --engine spark --out parts/

    Args:
        folder: folder of a finished run, or its .onnx file
        data: what to predict: a name, a file, or KIND:PATH
        out: a .parquet or .csv file (- prints CSV), or a folder for shards
        part: split of DATA to predict
        shards: number of shards (default: one per process)
        format: columns of a .csv file. predictions: the columns of the Parquet file; wide: ids and
            probabilities; lists: ids and label sets. wide and lists use the headers of the training
            file
        allow_python: allow a run to import Python code (models named python:MODULE:FACTORY)
        skip_bad_images: leave out images that do not decode
        engine: local: this machine; spark: a cluster, for Parquet tables of features
    """

    folder: str = option(positional=True, metavar="RUN")
    data: str = option(positional=True)
    out: str = option(stdout=".csv")
    part: Literal["all", "train", "calibration", "test"] = "all"
    shards: int | None = option(None, between=(1, 99_999))
    format: Literal["predictions", "wide", "lists"] = "predictions"
    allow_python: bool = False
    skip_bad_images: bool = False
    engine: Literal["local", "spark"] = "local"


# The labels are those of the run.
Options = with_reader_options(PredictOptions, leave_out=("labels",))


def run(options: PredictOptions) -> None:
    from credibly.checks import out_can_be_written

    if options.engine == "spark" or options.folder.endswith(".onnx"):
        if options.format != "predictions":
            raise input_error("--format needs the folder of a run and --engine local.")
        return _predict_dataset(options)
    out_can_be_written(options.out, folder=not options.out.endswith((".parquet", ".csv")))
    from credibly import train
    from credibly.notebook import counted
    from credibly.train.prediction import predict_to

    process, processes = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    done = train.load(options.folder, allow_python=options.allow_python)
    rows = done.read(
        options.data, skip_bad_images=options.skip_bad_images, **given(options, "reader")
    )
    done.check_part(rows, options.part)
    rows = rows.part(options.part)
    with progress("predicting", total=len(rows), quiet=options.quiet) as advance:
        written = predict_to(
            done,
            rows,
            options.out,
            shards=options.shards or processes,
            process=process,
            processes=processes,
            format=options.format,
            advance=advance,
        )
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
        result = predict_dataset(
            model, options.data, options.out, executor=options.engine, **given(options, "reader")
        )
    tell(
        options,
        vars(result),
        f"{counted(result.rows, 'row')} in {result.out}, {counted(result.files, 'file')}.",
    )
