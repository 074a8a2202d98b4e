"""Read an imported file and calibrate it, in a process of its own with limits.

A file of a few megabytes can unpack to any size, and can make a reader busy for any time. Nothing
of it is opened in the server: jobs and answers are JSON.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.child_processes import serve_jobs
from credibly.memory_limits import Limits

if TYPE_CHECKING:
    from credibly.predictions import Layout, Predictions
    from credibly.types import JsonObject

LIMITS = Limits(memory=3 * 2**30, seconds=45, file_bytes=128 * 2**20)
"""The libraries take half of the memory."""

MOST_VALUES = 2_000_000
"""Rows × columns of scores, as for predictions of the API."""

MOST_COLUMNS = 20_000
LONGEST_ID = 1000


def preview(job: JsonObject) -> JsonObject:
    """Return the names in a file, and its first rows."""
    from credibly.checks import InputError
    from credibly.predictions.foreign_files import preview_file

    found = preview_file(job["path"])
    if len(found.names) > MOST_COLUMNS:
        raise InputError(
            f"{job['path']} must have at most {MOST_COLUMNS:,} columns; it has "
            f"{len(found.names):,}. Use `credibly calibrate`."
        )
    return asdict(found)


def calibrate(job: JsonObject) -> JsonObject:
    """Calibrate a file as ``credibly calibrate`` does; write predictions and the fitted map."""
    from credibly.arrays import plain
    from credibly.predictions import Layout, Predictions
    from credibly.workflows import calibrate_file

    layout = Layout(**job["layout"], coding=job["coding"])
    _check_size(job, layout)
    given = {"truth": job["truth"], "layout": layout, "certain": job["certain"]}
    if job["method"] == "none":
        found = Predictions.from_values(job["path"], job["values"], loss=job["loss"], **given)
        _write(found, job)
        return {"rows": len(found), "labels": found.labels}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = calibrate_file(
            job["path"],
            job["loss"],
            method=job["method"],
            values=job["values"],
            **given,
        )
    kept = result.predictions
    _write(kept, job)
    result.pipeline.write(Path(job["out"]) / "map.json")
    bins = ("confidence", "frequency", "counts")
    diagrams = {
        name: {key: plain(getattr(each, key)) for key in bins}
        for name, each in result.diagrams.items()
    }
    return {
        **result.to_dict(),
        "rows": len(kept),
        "labels": kept.labels,
        "entries": int((kept.targets >= 0).sum()) if kept.targets is not None else 0,
        "calibrator_name": result.calibrator.name,
        "diagrams": diagrams,
        "warnings": sorted({str(each.message) for each in caught if _is_ours(each)}),
    }


def _write(found: Predictions, job: JsonObject) -> None:
    """Write predictions that name the file of their owner."""
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    named = replace(found, metadata={**found.metadata, "source": Path(job["path"]).name})
    named.write(out / "predictions.parquet")


def _check_size(job: JsonObject, layout: Layout) -> None:
    """Refuse what would take the API's limits, before anything is computed."""
    from credibly.arrays import to_numpy
    from credibly.checks import InputError
    from credibly.predictions.importing import read_values

    apart = job["truth"] is not None
    table = read_values(job["path"], job["values"], layout, apart=apart)
    values = table.scores if table.probabilities is None else table.probabilities
    shape = to_numpy(values).shape
    if shape[0] * shape[1] > MOST_VALUES:
        raise InputError(
            f"{job['path']} must hold at most {MOST_VALUES:,} values; it holds {shape[0]:,} × "
            f"{shape[1]:,}. Use `credibly calibrate`, which has no such limit."
        )
    ids = [] if table.ids is None else table.ids.tolist()
    longest = max((len(str(name)) for name in ids), default=0)
    if longest > LONGEST_ID:
        raise InputError(
            f"{job['path']} must have ids of at most {LONGEST_ID} characters; one has {longest:,}."
        )


def _is_ours(each: warnings.WarningMessage) -> bool:
    return issubclass(each.category, UserWarning) and "credibly" in each.filename


def answer(job: JsonObject) -> JsonObject:
    """Return what comes of a job; under ``error`` what is wrong with it."""
    from credibly.checks import InputError

    try:
        return {"preview": preview, "calibrate": calibrate}[job["work"]](job)
    except InputError as error:
        message = str(error)
    except MemoryError:
        limit = f"{LIMITS.memory // 2**30} GB"
        message = f"{job['path']} needs more memory than the limit of {limit}."
    except OSError as error:
        message = f"{job['path']} cannot be read: {error.strerror or 'it is damaged'}."
    if "out" in job:
        shutil.rmtree(job["out"], ignore_errors=True)
    return {"error": message}


if __name__ == "__main__":
    serve_jobs(lambda job: json.dumps(answer(json.loads(job))).encode(), LIMITS)
