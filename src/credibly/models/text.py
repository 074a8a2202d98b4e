"""Networks that take texts: an encoder from texts to tensors, and a network for these."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError, at_least
from credibly.data import Data
from credibly.data.token_rows import Encoded, SparseRows, Tensors
from credibly.files import atomic_path, read_json_object
from credibly.models.network import Network, Standardize
from credibly.types import Array

VOCABULARY = "vocabulary.json"
TERMS = 2**16
"""Most terms per column when not given: the most frequent ones."""


# Scripts without spaces between words: Thai to Khmer, kana, Chinese characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_TOKEN = re.compile(rf"[{_UNSPACED}\U00020000-\U0003134f]+|[^\W{_UNSPACED}]{{2,}}")
_RUN = re.compile(rf"[{_UNSPACED}\U00020000-\U0003134f]")


def terms_of(text: str) -> list[str]:
    """Return the terms of a text: lower-case words of two or more letters or digits.

    Scripts without spaces between words give each pair of neighbouring characters.

    Example:
        >>> terms_of("The cat’s A/C; 東京都")
        ['the', 'cat', '東京', '京都']
    """
    words = _TOKEN.findall(text.lower())
    if text.isascii():
        return words
    terms: list[str] = []
    for word in words:
        if len(word) > 1 and _RUN.match(word):
            terms += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            terms.append(word)
    return terms


class TextNetwork(Network):
    """A network that takes texts, through ``encode``.

    A network of your own for ``--model python:…`` is any ``torch.nn.Module`` with these methods.
    """

    input_names: tuple[str, ...] = ("inputs",)
    """What an exported file takes; one name stands for the rows as one dense matrix."""

    @abstractmethod
    def encode(self, texts: Array) -> Encoded:
        """Return rows of tensors for texts of shape (rows, columns)."""

    @abstractmethod
    def write_encoder(self, folder: Path) -> None:
        """Write into ``folder`` what ``encode`` needs beside the weights; never a pickle."""

    def read_encoder(self, folder: Path) -> None:
        """Do nothing: built-in networks are built from the folder."""


class SparseLinear(nn.Module):
    """A linear layer on sparse rows: the memory of a batch is that of its terms.

    Also takes dense rows (rows, terms), for export.
    """

    def __init__(self, num_terms: int, num_scores: int) -> None:
        super().__init__()
        # Zero, not random: terms that a label never saw in training say nothing about it.
        self.weight = nn.Parameter(torch.zeros(num_terms, num_scores))
        self.bias = nn.Parameter(torch.zeros(num_scores))

    def forward(self, inputs: Tensors | Tensor) -> Tensor:
        if isinstance(inputs, Tensor):
            return inputs @ self.weight + self.bias
        summed = nn.functional.embedding_bag(
            inputs["terms"],
            self.weight,
            inputs["starts"],
            mode="sum",
            per_sample_weights=inputs["values"].to(self.weight.dtype),
        )
        return summed + self.bias


class Tfidf(TextNetwork):
    """Scores linear in the weights of terms: (1 + log count) · idf, each row of norm 1.

    Args:
        vocabularies: the terms of each column of texts.
        num_scores: columns of the head.
        dropout: share of a row's terms that a training step leaves out.
    """

    idf: Tensor

    def __init__(
        self, vocabularies: Sequence[Sequence[str]], num_scores: int, dropout: float = 0.0
    ) -> None:
        self.vocabularies = [list(terms) for terms in vocabularies]
        count = sum(len(terms) for terms in self.vocabularies)
        columns = (len(self.vocabularies),)
        super().__init__(
            "tfidf", columns, Standardize(0), nn.Identity(), count, num_scores, dropout=dropout
        )
        self.register_buffer("idf", torch.ones(count))

    @classmethod
    def fit(cls, texts: Array, num_scores: int, *, terms: int | None, dropout: float) -> Tfidf:
        """Return a network with the vocabulary and the rates of terms of training texts."""
        most = TERMS if terms is None else int(at_least("terms", terms, 1))
        found = [_vocabulary(texts[:, column], most) for column in range(texts.shape[1])]
        if not any(len(vocabulary) for vocabulary, _ in found):
            raise InputError(
                "tfidf needs training texts with words; got none in "
                f"{len(texts):,} texts. Name the column of the texts by `text`."
            )
        model = cls([vocabulary for vocabulary, _ in found], num_scores, dropout)
        model.idf.copy_(torch.from_numpy(np.concatenate([idf for _, idf in found])))
        return model

    def _head(self, num_features: int, num_scores: int) -> Any:
        return SparseLinear(num_features, num_scores)

    def encode(self, texts: Array) -> SparseRows:
        """Return the weights of the terms of each row."""
        from sklearn.preprocessing import normalize

        parts = [
            _counter(vocabulary=terms).transform(texts[:, column])
            if terms
            else sparse.csr_matrix((len(texts), 0), dtype=np.float32)
            for column, terms in enumerate(self.vocabularies)
        ]
        counts = sparse.csr_matrix(sparse.hstack(parts, dtype=np.float32))
        counts.data = (1 + np.log(counts.data)) * self.idf.cpu().numpy()[counts.indices]
        return SparseRows(normalize(counts, copy=False))

    def write_encoder(self, folder: Path) -> None:
        """Write the terms; their rates are among the weights."""
        document = {"version": 1, "model": "tfidf", "columns": self.vocabularies}
        with atomic_path(folder / VOCABULARY) as beside:
            beside.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, num_scores: int, dropout: float) -> Tfidf:
        """Return a network of the shape that ``write_encoder`` wrote, for weights to be loaded."""
        path = folder / VOCABULARY
        if not path.is_file():
            raise InputError(f"{path} is missing; it holds the terms of the run. Put it back.")
        columns = read_json_object(path).get("columns")
        if not isinstance(columns, list) or not columns or not all(map(_is_terms, columns)):
            raise InputError(f"{path} must hold `columns`, lists of different terms; put it back.")
        return cls(columns, num_scores, dropout)

    def features(self, inputs: Any) -> Any:
        """Return the inputs: there is nothing before the head."""
        if isinstance(inputs, Tensor) or self.dropout.p == 0 or not self.training:
            return inputs
        dropped = Tensors(len(inputs), **inputs)
        dropped["values"] = self.dropout(inputs["values"])
        return dropped

    def hidden(self, inputs: Any) -> Any:
        """Return the inputs: ``features`` has dropped terms already."""
        return self.features(inputs)


def _is_terms(column: object) -> bool:
    if not isinstance(column, list) or not all(isinstance(term, str) for term in column):
        return False
    return len(set(column)) == len(column)


def _vocabulary(texts: Array, most: int) -> tuple[list[str], Array]:
    """Return the most frequent terms in alphabetical order, and their idf."""
    # A term of one text teaches nothing about others, unless there are only a few texts.
    counter = _counter(min_df=2 if len(texts) >= 100 else 1, max_features=most)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no terms at all, or none in two texts
        return [], np.zeros(0, np.float32)
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + len(texts)) / (1 + frequency)) + 1
    return counter.get_feature_names_out().tolist(), idf.astype(np.float32)


def _counter(**options: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    settings: dict[str, Any] = {"analyzer": terms_of, "dtype": np.float32, **options}
    return CountVectorizer(**settings)


def build_text(
    name: str,
    inputs: Data | tuple[int, ...],
    num_scores: int,
    *,
    encoder: Path | None = None,
    dropout: float | None = None,
    terms: int | None = None,
    max_length: int | None = None,
    frozen: bool = False,
    weights: str | Path | None = None,
) -> TextNetwork:
    """Return a network for texts by name: ``tfidf``, or ``hf:NAME``.

    Args:
        name: of the network.
        inputs: the data, or the shape that a run stored, where ``encoder`` is given.
        num_scores: columns of the head.
        encoder: folder of a run, which holds what ``write_encoder`` wrote.
        dropout: before the head; of ``tfidf``, share of terms left out of a training step.
        terms: most terms of ``tfidf`` per column.
        max_length: most tokens of an ``hf:`` encoder per row; longer texts are cut.
        frozen: train the head alone.
        weights: folder of the weights of an ``hf:`` encoder; ``"pretrained"`` for its own folder.
    """
    if name == "tfidf":
        if weights is not None:
            raise InputError("`weights`: tfidf has none to start from; leave them out.")
        if encoder is not None:
            return Tfidf.read(encoder, num_scores, dropout or 0.0)
        assert isinstance(inputs, Data)
        if inputs.kind == "text+regions":
            raise InputError(
                f"tfidf takes texts; {inputs.source} also holds regions of images. Name a network "
                "for both, e.g. --model hf:FOLDER of LXMERT."
            )
        train = inputs.part("train")
        texts = (train if len(train) else inputs).texts
        return Tfidf.fit(texts, num_scores, terms=terms, dropout=dropout or 0.0)
    if name.startswith("hf:"):
        from credibly.models.language import build_language

        return build_language(
            name,
            inputs,
            num_scores,
            encoder=encoder,
            dropout=dropout or 0.0,
            max_length=max_length,
            frozen=frozen,
            weights=weights,
        )
    kind = inputs.kind if isinstance(inputs, Data) else "text"
    raise InputError(
        f"`model` must be one for {kind}: tfidf (texts alone), hf:FOLDER or python:MODULE:FACTORY; "
        f"got {name!r}."
    )
