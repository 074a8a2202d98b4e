"""Memory of training on questions and answers of the size of VQA v2: 658,111 × 3,129.

    python -m benchmarks.studies.vqa_size        # needs transformers: see `make test-text`

Questions and the answers of ten people each are generated at the published numbers (443,757 to
train, 214,354 to test, 3,129 answers), regions of 1 % of the images in two files, as LXMERT
distributes train2014 and val2014. A child process with at most 8 GB of address space reads them,
trains a small LXMERT by the preset spa-vqa for some updates, and reports the most memory it held
after each stage. The line is written to ``vqa_size.jsonl``.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.training import markdown
from benchmarks.studies.vqa import WIDTH, _line, write_model

RECORD = Path(__file__).with_suffix(".jsonl")
QUESTIONS, ANSWERS, IMAGES = {"train": 443_757, "val": 214_354}, 3_129, 1_233
LIMIT, UPDATES = 8 * 2**30, 60


def construct(folder: Path) -> None:
    """Write questions, annotations and two files of regions in the published layouts."""
    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, ANSWERS + 1)
    first = 0
    for number, (part, count) in enumerate(QUESTIONS.items()):
        usual = generator.choice(ANSWERS, count, p=shares / shares.sum())
        usual[: 9 * ANSWERS] = np.resize(np.arange(ANSWERS), 9 * ANSWERS)  # each often enough
        other = generator.integers(0, ANSWERS, (count, 3))
        images = (number + 1) * 10_000 + generator.integers(0, IMAGES // 2, count)
        with (
            (folder / f"v2_OpenEnded_mscoco_{part}2014_questions.json").open("w") as questions,
            (folder / f"v2_mscoco_{part}2014_annotations.json").open("w") as annotations,
        ):
            questions.write('{"questions": [')
            annotations.write('{"annotations": [')
            for row in range(count):
                comma = ", " if row else ""
                about = f'"question_id": {first + row}, "image_id": {images[row]}'
                said = [usual[row]] * 7 + list(other[row])
                answers = ", ".join(f'{{"answer": "w{each}"}}' for each in said)
                questions.write(f'{comma}{{{about}, "question": "what color is the dog {row}?"}}')
                annotations.write(
                    f'{comma}{{{about}, "answer_type": "other", '
                    f'"multiple_choice_answer": "w{usual[row]}", "answers": [{answers}]}}'
                )
            questions.write("]}")
            annotations.write("]}")
        first += count
        regions = folder / "regions"
        regions.mkdir(exist_ok=True)
        with (regions / f"{part}2014_obj36.tsv").open("w") as file:
            for image in range(IMAGES // 2):
                boxes = np.sort(generator.random((12, 2, 2)), axis=1).reshape(12, 4) * 480
                features = generator.normal(size=(12, WIDTH))
                file.write(_line((number + 1) * 10_000 + image, boxes, features) + "\n")


def trained(folder: Path) -> dict[str, Any]:
    """Read and train within the limit; return memory and CPU seconds by stage."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    import credibly as cr

    found: dict[str, Any] = {}

    def stage(name: str) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found[name] = {"GB": round(peak, 2), "CPU seconds": round(time.process_time())}

    class Enough(Exception):
        pass

    class Stop(cr.train.Callback):
        def on_update(self, done: int, total: int) -> None:
            if done == 1:
                stage("first update")
            if done == UPDATES:
                stage(f"{UPDATES} updates")
                found["updates in an epoch"] = total
                raise Enough

    stage("libraries")
    preset = cr.papers.preset("spa-vqa")
    options = {**preset.data("vqa:x"), "regions": str(folder / "regions")}
    rows = cr.data.load(f"vqa:{folder}", **options)
    stage("read")
    found["rows"], found["labels"] = len(rows), len(rows.labels)
    found["targets"] = type(rows.targets).__name__
    settings = {**preset.settings, "model": f"hf:{folder / 'model'}", "weights": None, "epochs": 1}
    with contextlib.suppress(Enough):
        cr.train.fit(rows, cr.train.recipe(**settings), callback=Stop())
    return found


def table(record: dict[str, Any]) -> str:
    """Return the most memory held after each stage."""
    stages = {name: each for name, each in record.items() if isinstance(each, dict)}
    return markdown(
        ["until", "most memory, GB", "CPU seconds"],
        [[name, str(each["GB"]), str(each["CPU seconds"])] for name, each in stages.items()],
    )


def main() -> None:
    """Construct the files and measure in a child process."""
    if len(sys.argv) > 1:
        print(json.dumps(trained(Path(sys.argv[1]))))
        return
    with tempfile.TemporaryDirectory() as name:
        construct(Path(name))
        write_model(Path(name) / "model")
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.studies.vqa_size", name]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    RECORD.write_text(answer.splitlines()[-1] + "\n", encoding="utf-8")
    print(answer)


if __name__ == "__main__":
    main()
