"""VQA v2: questions, the answers of ten people each, and features of image regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from credibly.checks import InputError, choice, fits_memory
from credibly.data.rows import Data
from credibly.data.splits import TEST, TRAIN
from credibly.papers.datasets.folders import holding
from credibly.papers.datasets.regions import Regions, image_number, open_regions
from credibly.papers.vqa import normalize_answer
from credibly.targets import SparseTargets, as_decoded
from credibly.types import Array
from credibly.untrusted.documents import field, read_json

QUESTIONS = "v2_OpenEnded_mscoco_{}_questions.json"
ANNOTATIONS = "v2_mscoco_{}_annotations.json"
KEEP = (
    *("questions", "question_id", "question", "image_id"),
    *("annotations", "answers", "answer", "multiple_choice_answer"),
)
PARTS = {"train2014": TRAIN, "val2014": TEST}
MIN_OCCURRENCE = 9
DENSE = 2**28
"""Most entries of targets that are held as a matrix, 1 GB. Ten of 3,129 answers are not 0."""


@dataclass(frozen=True)
class Question:
    """A question about an image, and the answers of people."""

    number: str
    image: str
    text: str
    part: int
    answers: tuple[str, ...]
    usual: str
    """The most frequent answer: what the vocabulary is counted on."""


def read_vqa(
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    regions: str | None = None,
    soft: Literal["lxmert", "printed"] | None = None,
    min_occurrence: int | None = None,
) -> Data:
    """Read VQA v2 as published: ``train2014`` are training rows, ``val2014`` test rows.

    The labels are the answers that are the most frequent answer of at least ``min_occurrence``
    questions (9 gives LXMERT's 3,129), normalised as in the official evaluation.

    Args:
        path: folder of ``v2_OpenEnded_mscoco_*_questions.json`` and
            ``v2_mscoco_*_annotations.json``.
        labels: the answers, where they are given; an answer outside them is no label.
        regions: features of image regions, see docs/guide/data.md; without them rows are questions.
        soft: targets of an answer that n of ten people gave: ``lxmert`` (default) min(1, 0.3 n),
            which is its official accuracy; ``printed`` min(1, n / 3).
        min_occurrence: questions that an answer must be the most frequent one of.
    """
    how = choice("soft", soft or "lxmert", ("lxmert", "printed"))
    questions = read_questions(path)
    least = MIN_OCCURRENCE if min_occurrence is None else min_occurrence
    answers = list(labels) if labels is not None else vocabulary(questions, least, path)
    targets = _targets(questions, answers, 0.3 if how == "lxmert" else 1 / 3)
    answered = next((each for each in questions if each.answers), None)
    if answered is not None and not len(targets.indices):
        raise InputError(
            f"{path}: the {len(answers)} answers asked for must be among those people gave; none "
            f"is. Question {answered.number} was answered {answered.usual!r}. Give answers in the "
            "form of `cr.papers.vqa.normalize_answer`, or leave `labels` out."
        )
    return Data(
        labels=answers,
        targets=targets if len(questions) * len(answers) > DENSE else as_decoded(targets.dense()),
        ids=np.array([question.number for question in questions]),
        split=np.array([question.part for question in questions], dtype=np.int8),
        texts=[question.text for question in questions],
        regions=None if regions is None else _regions(questions, Path(regions).expanduser()),
        source=f"vqa:{path.name}",
    )


def _targets(questions: Sequence[Question], answers: Sequence[str], share: float) -> SparseTargets:
    """Return min(1, ``share`` × people) of the answers to each question.

    Questions without human answers, such as the published test questions, are unknown.
    """
    column = {answer: index for index, answer in enumerate(answers)}
    offsets, indices, counts = [0], [], []
    for question in questions:
        given = Counter(column[answer] for answer in question.answers if answer in column)
        indices += sorted(given)
        counts += [given[index] for index in sorted(given)]
        offsets.append(len(indices))
    values = np.minimum(1, np.array(counts, np.float32) * np.float32(share))
    known = np.array([bool(question.answers) for question in questions])
    starts, columns = np.array(offsets, np.int64), np.array(indices, np.int64)
    return SparseTargets(starts, columns, len(answers), values, None if known.all() else known)


def read_questions(path: Path) -> list[Question]:
    """Return the questions of all parts that exist, with their answers if they are published."""
    path = holding(path, *(QUESTIONS.format(part) for part in PARTS))
    found = [part for part in PARTS if (path / QUESTIONS.format(part)).exists()]
    return [question for part in found for question in _part(path, part)]


def _part(path: Path, part: str) -> list[Question]:
    file, beside = path / QUESTIONS.format(part), path / ANNOTATIONS.format(part)
    annotations = _annotations(beside) if beside.exists() else {}
    questions = []
    for row, record in enumerate(field(read_json(file, keep=KEEP), "questions", str(file))):
        where = f"{file}, question {row}"
        number = str(field(record, "question_id", where))
        text = field(record, "question", where)
        if not isinstance(text, str):
            raise InputError(f"{where}: `question` must be a text; got {text!r:.60}.")
        if annotations and number not in annotations:
            raise InputError(f"{where} (question_id {number}) has no answers in {beside.name}.")
        answers, usual = annotations.get(number, ((), ""))
        image = image_number(field(record, "image_id", where))
        questions.append(Question(number, image, text, PARTS[part], answers, usual))
    return questions


def _annotations(file: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return, by question, the normalised answers of each person and the most frequent answer."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    cache: dict[str, str] = {}

    def plain(answer: Any, where: str) -> str:
        if not isinstance(answer, str):
            raise InputError(f"{where} must be a text; got {answer!r:.60}.")
        if answer not in cache:
            cache[answer] = normalize_answer(answer)
        return cache[answer]

    for row, record in enumerate(field(read_json(file, keep=KEEP), "annotations", str(file))):
        where = f"{file}, annotation {row}"
        people = field(record, "answers", where)
        if not isinstance(people, list) or not people:
            raise InputError(f"{where}: `answers` must be a list of answers; got {people!r:.60}.")
        answers = [plain(field(each, "answer", where), f"{where}, `answer`") for each in people]
        usual = plain(
            field(record, "multiple_choice_answer", where), f"{where}, `multiple_choice_answer`"
        )
        found[str(field(record, "question_id", where))] = (tuple(answers), usual)
    return found


def vocabulary(questions: Sequence[Question], least: int, path: Path) -> list[str]:
    """Return the answers that are the most frequent one of at least ``least`` questions, sorted."""
    counts = Counter(question.usual for question in questions if question.usual)
    chosen = sorted(answer for answer, count in counts.items() if count >= least)
    if not chosen:
        most = counts.most_common(1)
        raise InputError(
            f"{path} must hold an answer that is right for at least {least} questions; the most "
            f"frequent is right for {most[0][1] if most else 0}. Lower `min_occurrence`, or give "
            "the answers by `labels`."
        )
    return chosen


def answer_counts(questions: Sequence[Question], answers: Sequence[str]) -> Array:
    """Return the number of people who gave each answer, (questions, answers) float32."""
    column = {answer: place for place, answer in enumerate(answers)}
    fits_memory("targets", len(questions), len(answers))
    counts = np.zeros((len(questions), len(answers)), np.float32)
    for row, question in enumerate(questions):
        for answer in question.answers:
            if answer in column:
                counts[row, column[answer]] += 1
    return counts


def vqa_counts(path: str | Path, ids: Sequence[str], answers: Sequence[str]) -> Array:
    """Return how many people gave each answer to the questions ``ids`` of a VQA folder.

    Use it with ``cr.papers.vqa.vqa_accuracy`` on predictions, whose ids are question numbers.
    """
    by_number = {question.number: question for question in read_questions(Path(path))}
    for number in ids:
        if str(number) not in by_number:
            raise InputError(f"{path} has no question {str(number)!r}, which the predictions name.")
    chosen = [by_number[str(number)] for number in ids]
    silent = next((question for question in chosen if not question.answers), None)
    if silent is not None:
        raise InputError(f"{path} has no human answers to question {silent.number!r}.")
    return answer_counts(chosen, answers)


def _regions(questions: Sequence[Question], path: Path) -> Regions:
    source = open_regions(path)
    for question in questions:
        if question.image not in source.names:
            raise InputError(
                f"{path} has no features of image {question.image}, which question "
                f"{question.number} asks about. Add them, or leave the question out."
            )
    return Regions(source, [question.image for question in questions])
