"""``credibly export SOURCE``: one ONNX file to calibrated probabilities and sets."""

from __future__ import annotations

from dataclasses import dataclass

from credibly.cli.command import option
from credibly.cli.tables import print_json, print_text


@dataclass(frozen=True, kw_only=True)
class Options:
    """Export a run or a map to ONNX: inputs → scores → link → calibrator → probabilities → sets.

    A map, as ``credibly calibrate --save map.json`` writes it, takes scores in place of inputs;
    one that was fitted on probabilities takes probabilities.

    The command runs the file in onnxruntime and compares it with the run: probabilities on noise,
    label sets also on the scores in the run's predictions. If they differ, nothing is written.

    Example:
      credibly export runs/digits --out digits.onnx
      credibly export map.json --out map.onnx
    """

    folder: str = option(help="a finished run, or a map.json", positional=True, metavar="SOURCE")
    out: str = option(help="the .onnx file to write")
    allow_python: bool = option(False, help="import the code that a python: run names")
    json: bool = option(False, help="print the result as JSON")


def run(options: Options) -> None:
    from credibly.files import check_out
    from credibly.notebook import counted

    check_out(options.out)
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
