"""``credibly export SOURCE``: one ONNX file to calibrated probabilities and sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from credibly.cli.command import input_error, option
from credibly.cli.terminal import print_json, print_text


@dataclass(frozen=True, kw_only=True)
class Options:
    """Export a run or a map to ONNX.

    The file of a run maps inputs to scores, calibrated probabilities and label sets. The file of a
    map (`credibly calibrate --save map.json`) takes scores, or probabilities if the map was fitted
    on probabilities. The command runs the file in onnxruntime and compares the result with torch.
    If they differ, nothing is written.

    Example:
      credibly export runs/digits --out digits.onnx
      credibly export map.json --out map.onnx

    Args:
        folder: folder of a finished run, or a map.json
        out: the .onnx file to write
        allow_python: import the code that a python: run names
        json: print the result as JSON
    """

    folder: str = option(positional=True, metavar="SOURCE")
    out: str
    allow_python: bool = False
    json: bool = False


def run(options: Options) -> None:
    from credibly.files import check_out
    from credibly.notebook import counted

    check_out(options.out, (".onnx",))
    if not options.folder.endswith(".json") and Path(options.folder).is_file():
        raise input_error(
            f"SOURCE must be the folder of a run, or a map.json; {options.folder} is neither."
        )
    from credibly import train

    if options.folder.endswith(".json"):
        from credibly.pipeline import Pipeline
        from credibly.train.onnx import export_map

        result = export_map(Pipeline.read(options.folder), options.out)
    else:
        run = train.load(options.folder, allow_python=options.allow_python)
        result = train.export(run, options.out)
    if options.json:
        print_json({"file": options.out, **result})
    else:
        if "encoder" in result:
            print_text(f"Note: {result['encoder']}.")
        names = "`, `".join(result.get("inputs", ["inputs"]))
        print_text(
            f"Wrote {options.out}: input `{names}` {tuple(result['shape'])}, outputs `scores`, "
            f"`probabilities`, `sets`. Largest difference from torch in probabilities: "
            f"{result['difference']:.1e}."
        )
        if result["rows"]:
            print_text(
                f"Label sets of {counted(result['rows'], 'row')} of the run compared: "
                f"{counted(result['changed'], 'difference')}."
            )
