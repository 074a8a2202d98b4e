"""Arguments are checked before anything heavy is imported and before any work is done."""

from __future__ import annotations

import subprocess
import sys

import pytest

from credibly import names
from credibly.models.network import MODELS

WRONG = {
    "train digits --loss spaa --out x": "unknown loss 'spaa'. Did you mean 'spa'?",
    "train digits --loss spa+lpt --out x": "after '+' only lpr or twl or published can stand",
    "train digits --model mpl --out x": "got 'mpl'. Did you mean 'mlp'?",
    "train digits --calibrate afine --out x": "invalid choice: 'afine'",
    "train digits --preset spa-cocoo --out x": "unknown preset 'spa-cocoo'",
    "train digits --epochs 0 --out x": "--epochs must lie in",
    "train digits --out /dev/null": "--out must be a folder",
    "compare digits --losses bce,spaa --out x": "unknown loss 'spaa'",
    "compare digits --model mpl --out x": "got 'mpl'",
    "calibrate scores.npz --loss bcee --out p.parquet": "unknown loss 'bcee'",
    "calibrate scores.npz --loss bce --method afine --out p.parquet": "invalid choice: 'afine'",
    "calibrate scores.npz --loss bce --out p.csv": "--out must end in .parquet",
    "calibrate scores.npz --loss bce --out /dev/null/p.parquet": "--out must be",
    "audit spaa": "unknown loss 'spaa'",
    "audit spa --out x.txt": "--out must end in .svg",
    "report p.parquet --out p.parquet": "--out must not be an input",
    "report p.parquet --out /dev/null": "--out must be a file to write",
    "export run --out /dev/null": "--out must end in .onnx",
    "predict run digits --out /dev/null": "--out must be",
    "serve p.parquet --port 99999": "--port must lie between 0 and 65,535",
    "evaluate p.parquet --bins 0": "--bins must lie between",
    "evalute p.parquet": "Did you mean evaluate?",
    "search p.parquet -knife": "write '!knife' instead of '-knife'",
}

PROGRAM = """
import contextlib, io, sys
from credibly.cli import main
for line in {lines!r}:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            code = main(line.split())
        except SystemExit as ended:
            code = ended.code
    heavy = [name for name in ("torch", "numba", "scipy", "sklearn", "pyarrow", "duckdb")
             if name in sys.modules]
    print(repr((line, code, errors.getvalue(), heavy)))
"""


def test_wrong_arguments_are_refused_before_anything_heavy_is_imported(tmp_path):
    program = PROGRAM.format(lines=list(WRONG))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    answers = [eval(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(WRONG), done.stderr
    for line, code, errors, heavy in answers:
        assert WRONG[line] in errors, line
        assert (code, heavy, errors.count("\n")) == (2, [], 1), line
    assert not any(tmp_path.iterdir())


def test_the_table_of_models_is_that_of_the_package():

    known = {*names.MODELS, *(f"{prefix}NAME" for prefix in names.MODEL_PREFIXES)}
    assert set(MODELS) <= known | {"python:MODULE:FACTORY"}
    assert set(names.MODELS) == {name for name in MODELS if ":" not in name}


@pytest.mark.parametrize("name", ["spa", "SPA", "ce", " spa +lpr", "asl(gamma_neg=4)+lpr"])
def test_right_names_pass(name):
    names.check_loss(name)
