"""Networks for texts: an encoder from texts to tensors, and a network on these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from credibly.checks import InputError, at_least
from credibly.data import Data, SparseRows
from credibly.data.token_rows import Tensors, TokenRows
from credibly.files import atomic_path
from credibly.models.backbones import huggingface_config, huggingface_model, library
from credibly.models.network import Inputs, NetworkModule, Standardize
from credibly.names import PRETRAINED
from credibly.types import Array, JsonObject
from credibly.untrusted.budget import first_line
from credibly.untrusted.documents import read_json_object

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

    In scripts without spaces between words, each pair of neighbouring characters is a term.

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


class TextNetwork(NetworkModule):
    """A network for texts, which ``encode`` converts to tensors.

    Your own network for ``--model python:…`` is any ``torch.nn.Module`` with these methods.
    """

    input_names: tuple[str, ...] = ("inputs",)
    """What an exported file takes; one name stands for the rows as one dense matrix."""

    def read_encoder(self, folder: Path) -> None:
        """Do nothing: built-in networks are built from the folder."""


class TermsLinear(nn.Module):
    """A linear layer on sparse rows. The memory of a batch depends only on its number of terms.

    It also takes dense rows (rows, terms), for export.
    """

    def __init__(self, num_terms: int, num_scores: int) -> None:
        super().__init__()
        # Zero, not random: the data contain no information on terms that training did not see.
        # NumPy's zeros take no memory until they are written, by a solver at its end.
        zeros = np.zeros((num_terms, num_scores), np.float32)
        self.weight = nn.Parameter(torch.from_numpy(zeros))
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
        dropout: share of a row's terms that a training step drops.
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
        """Return a network with vocabulary and term rates of the training texts."""
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

    def _head(self, num_features: int, num_scores: int) -> nn.Module:
        return TermsLinear(num_features, num_scores)

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
        """Write the terms. Their rates are stored with the weights."""
        document = {"version": 1, "model": "tfidf", "columns": self.vocabularies}
        with atomic_path(folder / VOCABULARY) as beside:
            beside.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, num_scores: int, dropout: float) -> Tfidf:
        """Return a network of the shape that ``write_encoder`` stored, for weights to be loaded."""
        path = folder / VOCABULARY
        if not path.is_file():
            raise InputError(f"{path} is missing; it holds the terms of the run. Put it back.")
        columns = read_json_object(path).get("columns")
        if not isinstance(columns, list) or not columns or not all(map(_is_terms, columns)):
            raise InputError(f"{path} must hold `columns`, lists of different terms; put it back.")
        return cls(columns, num_scores, dropout)

    def features(self, inputs: Inputs) -> Inputs:
        """Return the inputs: the head is the only layer."""
        return inputs


def _is_terms(column: object) -> bool:
    if not isinstance(column, list) or not all(isinstance(term, str) for term in column):
        return False
    return len(set(column)) == len(column)


def _vocabulary(texts: Array, most: int) -> tuple[list[str], Array]:
    """Return the most frequent terms in alphabetical order, and their idf."""
    # A term of only one text does not generalise, unless there are only a few texts.
    counter = _counter(min_df=2 if len(texts) >= 100 else 1, max_features=most)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no terms at all, or no term in two texts
        return [], np.zeros(0, np.float32)
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + len(texts)) / (1 + frequency)) + 1
    return counter.get_feature_names_out().tolist(), idf.astype(np.float32)


def _counter(**options: object) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    settings: JsonObject = {"analyzer": terms_of, "dtype": np.float32, **options}
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
        inputs: the data, or with ``encoder`` the shape that a run stored.
        num_scores: number of outputs of the head.
        encoder: folder of a run with the files of ``write_encoder``.
        dropout: before the head; for ``tfidf``, the share of terms that a training step drops.
        terms: maximum number of terms of ``tfidf`` per column.
        max_length: maximum number of tokens per row of an ``hf:`` encoder; longer texts are
        cut.
        frozen: train only the head.
        weights: folder of the weights of an ``hf:`` encoder; ``"pretrained"`` for its own
        folder.
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
        transformers = library("transformers", name)
        folder = str(encoder) if encoder is not None else name.partition(":")[2]
        config = huggingface_config(transformers, folder, name)
        shape = _shape(inputs, config, name)
        tokenizer = _tokenizer(transformers, folder, name, config)
        source = None if encoder is not None or weights is None else str(weights)
        source = folder if source == PRETRAINED else source
        model = huggingface_model(transformers, config, source, name)
        return TokenNetwork(
            name,
            shape,
            tokenizer,
            QuestionAndRegions(model) if len(shape) == 3 else MeanTokens(model),
            num_scores,
            max_length=_length(max_length, tokenizer, config, name),
            dropout=dropout or 0.0,
            frozen=frozen,
        )
    kind = inputs.kind if isinstance(inputs, Data) else "text"
    raise InputError(
        f"`model` must be one for {kind}: tfidf (texts alone), hf:FOLDER or python:MODULE:FACTORY; "
        f"got {name!r}."
    )


# Encoders of transformers ------------------------------------------------------------------------
#
# A folder contains config.json, the files of a fast tokenizer, and model.safetensors for weights.
# Nothing is downloaded, no code of the model is run, and no pickle is read.

LONGEST = 512
"""Tokens per row when neither the caller nor the encoder says."""

REGIONS = ("visual_feats", "visual_pos", "visual_attention_mask")
TOKENS = ("input_ids", "attention_mask")
MODELS_WITH_REGIONS = ("lxmert",)


class TokenNetwork(TextNetwork):
    """A transformers encoder with a linear head, for padded tokens and, in some models, regions.

    Args:
        name: the name of the model in errors.
        shape: of one input: (columns of text,), with regions also their number and width.
        tokenizer: of the encoder.
        backbone: maps tensors by name to (rows, ``num_features``).
        num_features: number of features per row.
        num_scores: number of outputs of the head.
        max_length: maximum number of tokens per row.
        dropout: before the head.
        frozen: train only the head.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        tokenizer: Any,
        backbone: MeanTokens | QuestionAndRegions,
        num_scores: int,
        *,
        max_length: int,
        dropout: float = 0.0,
        frozen: bool = False,
    ) -> None:
        width = backbone.num_features
        super().__init__(
            *(name, shape, Standardize(0), backbone, width, num_scores),
            dropout=dropout,
            frozen=frozen,
        )
        self.tokenizer, self.max_length = tokenizer, max_length
        own = ("token_type_ids",) if "token_type_ids" in tokenizer.model_input_names else ()
        self.input_names = (*TOKENS, *own, *(REGIONS if len(shape) == 3 else ()))

    def encode(self, texts: Array) -> TokenRows:
        """Return the tokens of each text or pair, cut to ``max_length``."""
        columns: list[list[str]] = [list(column) for column in texts.T]
        names = [name for name in self.input_names if name in ("input_ids", "token_type_ids")]
        if not columns[0]:
            none = {name: np.zeros(0, np.int64) for name in names}
            return TokenRows(none, np.zeros(1, np.int64), dict.fromkeys(names, 0))
        model: Any = self.backbone.model
        with _worded(self.name):
            found = self.tokenizer(
                *columns, truncation=True, max_length=self.max_length, return_attention_mask=False
            )
            for name, limit in (("input_ids", "vocab_size"), ("token_type_ids", "type_vocab_size")):
                known = getattr(model.config, limit, 2**31)
                if name in names and max(map(max, filter(None, found[name])), default=0) >= known:
                    raise ValueError(f"it gives numbers past the {known} of `{limit}`")
        lengths = [len(ids) for ids in found["input_ids"]]
        padding = {"input_ids": self.tokenizer.pad_token_id or 0, "token_type_ids": 0}
        tokens = {
            name: np.concatenate([np.asarray(row, np.int64) for row in found[name]])
            for name in names
        }
        return TokenRows(tokens, np.concatenate([[0], np.cumsum(lengths)]), padding)

    def write_encoder(self, folder: Path) -> None:
        """Write the tokenizer and the config of the encoder. The run stores the weights."""
        self.tokenizer.save_pretrained(str(folder))
        self.backbone.model.config.save_pretrained(str(folder))  # type: ignore[union-attr]

    def features(self, inputs: Inputs) -> Tensor:
        """Return the inputs of the head: (rows, num_features)."""
        with torch.no_grad() if self.frozen else nullcontext():
            return self.backbone(inputs)


class MeanTokens(nn.Module):
    """One vector per text: the mean over its tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        if "pooler" in dict(model.named_children()):
            model.pooler = None  # no loss would train it
        self.model = model
        self.num_features = int(model.config.hidden_size)

    def forward(self, inputs: Tensors) -> Tensor:
        hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


class QuestionAndRegions(nn.Module):
    """One vector per question and image: LXMERT and the first layers of its answer head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        hidden = int(model.config.hidden_size)
        self.num_features = 2 * hidden
        self.answer = nn.Sequential(
            nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.LayerNorm(2 * hidden, eps=1e-12)
        )

    def forward(self, inputs: Tensors) -> Tensor:
        return self.answer(self.model(**inputs).pooled_output)


def _shape(inputs: Data | tuple[int, ...], config: Any, name: str) -> tuple[int, ...]:
    shape = inputs.input_shape if isinstance(inputs, Data) else tuple(inputs)
    assert shape is not None  # texts have a shape
    takes_regions = config.model_type in MODELS_WITH_REGIONS
    if takes_regions and len(shape) != 3:
        raise InputError(
            f"{name} ({config.model_type}) takes questions with regions of images; the data hold "
            "texts alone. Load them by vqa:FOLDER with `regions`, or use a text encoder."
        )
    if not takes_regions and len(shape) == 3:
        raise InputError(
            f"{name} ({config.model_type}) takes texts; the data also hold regions of images. Use "
            "LXMERT, or python:MODULE:FACTORY for a network of your own."
        )
    if takes_regions and int(config.visual_feat_dim) != shape[2]:
        raise InputError(
            f"{name} takes regions of width {config.visual_feat_dim}; those of the data have width "
            f"{shape[2]}. Use features of its extractor, or a config with visual_feat_dim "
            f"{shape[2]}."
        )
    return tuple(shape)


TOKENIZER_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model"),
    "sentencepiece.bpe.model",
)


def _tokenizer(transformers: ModuleType, folder: str, name: str, config: Any) -> Any:
    # Without these files, transformers would create a tokenizer without a vocabulary.
    if Path(folder).is_dir() and not any((Path(folder) / f).exists() for f in TOKENIZER_FILES):
        raise InputError(
            f"{name} must have a tokenizer beside config.json ({', '.join(TOKENIZER_FILES[:2])} …);"
            f" {folder} holds none. Save it there: `tokenizer.save_pretrained({folder!r})`."
        )
    with _worded(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_fast=True
        )
    known = int(config.vocab_size)
    if len(tokenizer) > known:
        raise InputError(
            f"{name}: its tokenizer knows {len(tokenizer):,} tokens, its model {known:,}; the "
            "tokenizer belongs to another model. Put the files of one model into the folder."
        )
    return tokenizer


@contextmanager
def _worded(name: str) -> Iterator[None]:
    """Convert errors of damaged tokenizers, which can be of any type, even panics of Rust."""
    try:
        yield
    except (InputError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise InputError(
            f"{name} must have a tokenizer beside config.json that reads every text; "
            f"{first_line(error)}. Save it there: `tokenizer.save_pretrained(FOLDER)`."
        ) from error


def _length(given: int | None, tokenizer: Any, config: Any, name: str) -> int:
    positions = int(config.to_dict().get("max_position_embeddings") or LONGEST)
    # The positions of RoBERTa start after the index of its padding.
    positions -= 2 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
    most = min(positions, int(min(tokenizer.model_max_length, 2**31)))
    if given is None:
        return min(most, LONGEST)
    if given > most:
        raise InputError(
            f"`max_length` of {name} must be at most {most}, its positions; got {given}."
        )
    return given
