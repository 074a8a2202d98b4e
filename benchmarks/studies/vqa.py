"""SPA beside BCE and others under LXMERT's protocol, on constructed questions about scenes.

    python -m benchmarks.studies.vqa [--seeds 5] [--losses bce,spa,asl,twl] [--table]

Needs transformers: see ``make test-text``. Each finished run is lines of ``vqa.jsonl``; the same
command goes on where it stopped, and prints means, spreads and paired 95 % intervals.

VQA v2 and its region features cannot be had here (tens of GB), so these are constructed: a scene
holds 2 to 6 objects, each a kind and a color; a region is the noisy sum of two vectors, and some
regions are empty. Questions ask whether a kind is there, for the color of one, and for counts; ten
simulated people answer each with their own mistakes and synonyms, more often where the region is
noisy. Files are written in the published layouts and read by ``vqa:``. The network is LXMERT from a
small config, trained from random weights with LXMERT's schedule (linear, warm-up, clipping) at a
rate for its size. What is compared are losses on one network, not the figures of the paper.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402 - after the number of threads is set

from benchmarks.studies.training import markdown, spread  # noqa: E402

SEEDS = 5
BASE = "bce"
LOSSES = ("bce", "spa", "asl", "twl")
NUMBERS = ("VQA accuracy, %", "ACE, %", "MCE, %", "NLL × 1000")
COMPARED = (NUMBERS[0], NUMBERS[3])
KINDS = ("dog", "cat", "car", "tree", "fish", "cup", "boat", "bird")
COLORS = ("red", "green", "blue", "gray", "white")
SYNONYMS = {"gray": "silver", "white": "light", "blue": "navy"}
REGIONS, WIDTH = 12, 32
COUNTS = {"train": 3200, "val": 1200}


def construct(folder: Path, seed: int = 0) -> None:
    """Write questions, annotations and regions in the published layouts."""
    generator = np.random.default_rng(seed)
    kinds, colors = (generator.normal(size=(len(n), WIDTH)) for n in (KINDS, COLORS))
    lines = []
    for part, count in COUNTS.items():
        questions, annotations = [], []
        for row in range(count):
            image = (1 if part == "train" else 2) * 1_000_000 + row
            objects = [
                (int(generator.integers(len(KINDS))), int(generator.integers(len(COLORS))))
                for _ in range(int(generator.integers(2, 7)))
            ]
            noise = float(generator.uniform(0.3, 1.2))
            features = generator.normal(0, noise, (REGIONS, WIDTH))
            for place, (kind, color) in enumerate(objects):
                features[place] += kinds[kind] + colors[color]
            boxes = np.sort(generator.random((REGIONS, 2, 2)), axis=1).reshape(REGIONS, 4)
            lines.append(_line(image, boxes * [640, 480, 640, 480], features))
            text, answer, kind_of = _question(objects, generator)
            people = [_said(answer, kind_of, noise, generator) for _ in range(10)]
            usual = max(dict.fromkeys(people), key=people.count)
            questions.append({"question_id": image, "image_id": image, "question": text})
            annotations.append(
                {
                    "question_id": image,
                    "image_id": image,
                    "answer_type": kind_of,
                    "multiple_choice_answer": usual,
                    "answers": [{"answer": said} for said in people],
                }
            )
        for name, key, content in (
            ("v2_OpenEnded_mscoco_{}2014_questions.json", "questions", questions),
            ("v2_mscoco_{}2014_annotations.json", "annotations", annotations),
        ):
            (folder / name.format(part)).write_text(json.dumps({key: content}), encoding="utf-8")
    (folder / "regions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(image: int, boxes: np.ndarray, features: np.ndarray) -> str:
    cells = [base64.b64encode(a.astype(np.float32).tobytes()).decode() for a in (boxes, features)]
    return "\t".join([str(image), "640", "480", str(REGIONS), *cells])


def _question(
    objects: list[tuple[int, int]], generator: np.random.Generator
) -> tuple[str, str, str]:
    kind, color = objects[int(generator.integers(len(objects)))]
    asked = int(generator.integers(3))
    if asked == 0:
        kind = int(generator.integers(len(KINDS))) if generator.random() < 0.6 else kind
        there = any(each == kind for each, _ in objects)
        return f"is there a {KINDS[kind]}?", "yes" if there else "no", "yes/no"
    if asked == 1:
        return f"what color is the {KINDS[kind]}?", COLORS[color], "other"
    return f"how many {KINDS[kind]}?", str(sum(each == kind for each, _ in objects)), "number"


def _said(answer: str, kind: str, noise: float, generator: np.random.Generator) -> str:
    """Return what one person says: wrong more often where the region is noisy."""
    if generator.random() < 0.3 and answer in SYNONYMS:
        return SYNONYMS[answer]
    if generator.random() > 0.3 * noise:
        return answer
    if kind == "yes/no":
        return "no" if answer == "yes" else "yes"
    if kind == "number":
        return str(max(0, int(answer) + int(generator.choice([-1, 1]))))
    return str(generator.choice(COLORS))


def write_model(folder: Path) -> None:
    """Write a small LXMERT config and a tokenizer of whole words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import LxmertConfig, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *KINDS]
    words += ["is", "there", "a", "what", "color", "the", "how", "many", "?"]
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=20
    ).save_pretrained(str(folder))
    LxmertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_attention_heads=2,
        intermediate_size=128,
        **{"l_layers": 2, "x_layers": 2, "r_layers": 1},
        visual_feat_dim=WIDTH,
        visual_pos_dim=4,
        max_position_embeddings=20,
    ).save_pretrained(str(folder))


def one(folder: Path, loss: str, seed: int) -> dict[str, dict[str, float]]:
    """Train under one loss; return the numbers before and after the affine calibrator."""
    import credibly as cr
    from credibly.papers.datasets.vqa import vqa_counts
    from credibly.runtime import sigmoid
    from credibly.train import fit, recipe

    options = {"regions": str(folder / "regions.tsv"), "seed": seed}
    data = cr.data.load(f"vqa:{folder}", **options)
    changes = {
        "loss": loss,
        "model": f"hf:{folder / 'model'}",
        "weights": None,
        "learning_rate": 1e-3,
        "epochs": 10,
        "calibrate": "affine",
    }
    settings = recipe(**{**cr.papers.preset("spa-vqa").settings, **changes})
    run = fit(data, settings, folder=folder / f"run-{loss}-{seed}", seed=seed)
    test = data.part("test")
    counts = vqa_counts(folder, test.ids, data.labels)
    scores = run.scores(test).numpy()
    stages = {f"{loss} + affine": run.pipeline.probabilities(scores)}
    if run.criterion.has_link:
        stages = {loss: sigmoid(run.pipeline.link_log_odds(scores)), **stages}
    return {name: _numbers(p, test.targets, counts) for name, p in stages.items()}


def _numbers(
    probabilities: np.ndarray, targets: np.ndarray, counts: np.ndarray
) -> dict[str, float]:
    from credibly import metrics
    from credibly.papers.vqa import vqa_accuracy
    from credibly.targets import Targets

    error = {
        kind: float(metrics.calibration_error(probabilities, Targets(targets), kind))
        for kind in ("ace", "mce")
    }
    values = (
        100 * vqa_accuracy(probabilities, counts),
        100 * error["ace"],
        100 * error["mce"],
        1000 * float(metrics.log_loss(probabilities, Targets(targets))),
    )
    return dict(zip(NUMBERS, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.vqa")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--losses", default=",".join(LOSSES))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--table", action="store_true", help="print the table of the records")
    given = parser.parse_args()
    records = read_records(given.out)
    for seed in range(0 if given.table else given.seeds):
        done = {each["loss"] for each in records if each["seed"] == seed}
        missing = [loss for loss in given.losses.split(",") if loss not in done]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            construct(folder, seed)
            (folder / "model").mkdir()
            write_model(folder / "model")
            for loss in missing:
                own = [
                    {"seed": seed, "loss": loss, "stage": stage, **values}
                    for stage, values in one(folder, loss, seed).items()
                ]
                with given.out.open("a", encoding="utf-8") as file:
                    file.write("".join(json.dumps(each) + "\n" for each in own))
                records += own
                print(*own, sep="\n", file=sys.stderr, flush=True)
    print(table(records))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(records: list[dict[str, Any]]) -> str:
    """Return means and spreads by stage, and what each has over BCE, seed by seed."""
    rows = []
    base = {each["seed"]: each for each in records if each["stage"] == BASE}
    for stage in dict.fromkeys(each["stage"] for each in records):
        own = [each for each in records if each["stage"] == stage]
        cells = [spread([each[number] for each in own], 2) for number in NUMBERS]
        pairs = [each for each in own if each["seed"] in base]
        for number in COMPARED:
            over = [each[number] - base[each["seed"]][number] for each in pairs]
            cells.append("–" if stage == BASE else interval(over))
        rows.append([stage, *cells])
    return markdown(["loss", *NUMBERS, *(f"{number}: − BCE" for number in COMPARED)], rows)


def interval(values: list[float]) -> str:
    """Return the mean and its 95 % interval by Student's t."""
    from scipy.stats import t

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return f"{mean:+.2f}"
    half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / count**0.5)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


if __name__ == "__main__":
    main()
