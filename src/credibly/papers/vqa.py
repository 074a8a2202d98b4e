"""Visual question answering: answers are normalised and scored as in the official evaluation.

Antol et al. (2015) and Goyal et al. (2017): ten people answer each question. The accuracy of an
answer is min(1, n / 3), where n of nine people gave it, averaged over the ten ways to leave one
person out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from credibly.arrays import to_numpy
from credibly.checks import InputError
from credibly.types import Array, ArrayLike

_PUNCTUATION = (
    *(";", "/", "[", "]", '"', "{", "}", "(", ")", "=", "+", "\\", "_", "-", ">", "<", "@"),
    *("`", ",", "?", "!"),
)
_PERIOD = re.compile(r"(?!<=\d)(\.)(?!\d)")
_COMMA = re.compile(r"(\d)(,)(\d)")
_ARTICLES = ("a", "an", "the")
_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten".split()  # noqa: SIM905
    )
} | {"none": "0"}

# Words that people write without one apostrophe, as in the official table.
_CONTRACTED = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't "
    "haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am "
    "mightn't mightn't've might've mustn't must've needn't not've o'clock oughtn't shan't she'd've "
    "should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd someone'd've "
    "someone'll someone's something'd something'd've something'll that's there'd there'd've "
    "there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't "
    "what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's "
    "who've why'll why're why's won't would've wouldn't wouldn't've y'all y'all'll y'all'd've "
    "'ow's'at you'd you'd've you'll you're you've"
)
_CONTRACTIONS = {
    written[:place] + written[place + 1 :]: written
    for written in _CONTRACTED.split()
    for place, letter in enumerate(written)
    if letter == "'"
} | {"somebody'd": "somebodyd"}  # as in the official table


def normalize_answer(answer: str) -> str:
    """Normalise an answer for comparison.

    Punctuation and articles are removed, numbers up to ten become digits, and missing apostrophes
    are restored.

    Example:
        >>> normalize_answer("The two dogs!"), normalize_answer("dont know")
        ('2 dogs', "don't know")
    """
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    plain = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        nothing = beside_space or _COMMA.search(text) is not None
        plain = plain.replace(mark, "" if nothing else " ")
    plain = _PERIOD.sub("", plain)
    words = [_NUMBERS.get(word, word) for word in plain.lower().split()]
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def answer_accuracy(answer: str, human_answers: Sequence[str]) -> float:
    """Return the accuracy of an answer, given the answers of the people who were asked.

    It is the mean, over each person left out, of min(1, n / 3), where n of the others gave the
    answer.

    Example:
        >>> round(answer_accuracy("Two", ["2", "two", "3", "4", "5", "6", "7", "8", "9", "1"]), 3)
        0.6
    """
    if not human_answers:
        raise InputError("`human_answers` must hold at least one answer; got none.")
    given = normalize_answer(answer)
    count = sum(normalize_answer(other) == given for other in human_answers)
    return float(count_accuracy(np.array(count), people=len(human_answers)))


def count_accuracy(counts: ArrayLike, people: int = 10) -> Array:
    """Return the accuracy of an answer that ``counts`` of ``people`` gave.

    Example:
        >>> count_accuracy([0, 1, 2, 3, 4, 10]).round(3).tolist()
        [0.0, 0.3, 0.6, 0.9, 1.0, 1.0]
    """
    given = to_numpy(counts).astype(np.float64)
    if people < 1 or given.min(initial=0) < 0 or given.max(initial=0) > people:
        raise InputError(f"`counts` must lie between 0 and `people`, {people}; got {given!r:.80}.")
    without_one = np.minimum(1, np.maximum(given - 1, 0) / 3)
    others = np.minimum(1, given / 3)
    return (given * without_one + (people - given) * others) / people


def vqa_accuracy(scores: ArrayLike, counts: ArrayLike, people: int = 10) -> float:
    """Return the mean accuracy of the answers with the highest scores.

    Args:
        scores: (questions, answers), probabilities or other scores that rank answers.
        counts: (questions, answers), the number of people who gave each answer. An answer
            outside of the vocabulary has no column, so no prediction is right about it.
        people: number of people who were asked.

    Example:
        >>> vqa_accuracy([[0.9, 0.1], [0.2, 0.8]], [[10, 0], [7, 2]])
        0.8
    """
    ranked, given = to_numpy(scores), to_numpy(counts)
    if ranked.ndim != 2 or ranked.shape != given.shape or not len(ranked):
        raise InputError(
            "`scores` and `counts` must have one shape, (questions, answers); got "
            f"{ranked.shape} and {given.shape}."
        )
    chosen = given[np.arange(len(given)), ranked.argmax(axis=1)]
    return float(count_accuracy(chosen, people).mean())
