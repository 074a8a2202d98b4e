"""Text encoders of transformers by name: fresh from a config, or with local weights.

A folder holds ``config.json``, the files of a fast tokenizer and ``model.safetensors`` for weights.
Nothing is downloaded, no code of the model's own is run, and no pickle is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.checks import InputError
from credibly.data import Data
from credibly.data.token_rows import Tensors, TokenRows
from credibly.models.external import PRETRAINED, library
from credibly.models.network import Standardize
from credibly.models.text import TextNetwork
from credibly.types import Array

LONGEST = 512
"""Tokens per row when neither the caller nor the encoder says."""

REGIONS = ("visual_feats", "visual_pos", "visual_attention_mask")
TOKENS = ("input_ids", "attention_mask")
MODELS_WITH_REGIONS = ("lxmert",)


class TokenNetwork(TextNetwork):
    """A transformers encoder with a linear head; takes padded tokens, and regions where it does.

    Args:
        name: what the model is called in errors.
        shape: of one input: (columns of text,), then regions and their width where there are any.
        tokenizer: of the encoder.
        backbone: from tensors by name to (rows, ``num_features``).
        num_features: what the backbone returns per row.
        num_scores: columns of the head.
        max_length: most tokens per row.
        dropout: before the head.
        frozen: train the head alone.
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
            return TokenRows(
                {name: np.zeros(0, np.int64) for name in names},
                np.zeros(1, np.int64),
                dict.fromkeys(names, 0),
            )
        found = self.tokenizer(
            *columns, truncation=True, max_length=self.max_length, return_attention_mask=False
        )
        lengths = [len(ids) for ids in found["input_ids"]]
        padding = {"input_ids": self.tokenizer.pad_token_id or 0, "token_type_ids": 0}
        return TokenRows(
            {
                name: np.concatenate([np.asarray(row, np.int64) for row in found[name]])
                for name in names
            },
            np.concatenate([[0], np.cumsum(lengths)]),
            padding,
        )

    def write_encoder(self, folder: Path) -> None:
        """Write the tokenizer and the config of the encoder; the weights are the run's."""
        self.tokenizer.save_pretrained(str(folder))
        self.backbone.model.config.save_pretrained(str(folder))  # type: ignore[union-attr]

    def features(self, inputs: Any) -> Tensor:
        """Return what the head sees: (rows, num_features)."""
        if self.frozen:
            with torch.no_grad():
                return self.backbone(inputs)
        return self.backbone(inputs)


class MeanTokens(nn.Module):
    """One vector per text: the mean over its tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        if "pooler" in dict(model.named_children()):
            model.pooler = None  # would be trained by nobody
        self.model = model
        self.num_features = int(model.config.hidden_size)

    def forward(self, inputs: Tensors) -> Tensor:
        hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


class QuestionAndRegions(nn.Module):
    """One vector per question and image: LXMERT's, then the first layers of its answer head."""

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


def build_language(
    name: str,
    inputs: Data | tuple[int, ...],
    num_scores: int,
    *,
    encoder: Path | None,
    dropout: float,
    max_length: int | None,
    frozen: bool,
    weights: str | Path | None,
) -> TokenNetwork:
    """Return ``hf:NAME`` for texts, or for texts with regions; see ``build_text``."""
    transformers = library("transformers", name)
    folder = str(encoder) if encoder is not None else name.partition(":")[2]
    config = _config(transformers, folder, name)
    shape = _shape(inputs, config, name)
    tokenizer = _tokenizer(transformers, folder, name, config)
    source = None if encoder is not None or weights is None else str(weights)
    model = _model(transformers, config, folder if source == PRETRAINED else source, name)
    backbone = QuestionAndRegions(model) if len(shape) == 3 else MeanTokens(model)
    return TokenNetwork(
        name,
        shape,
        tokenizer,
        backbone,
        num_scores,
        max_length=_length(max_length, tokenizer, config, name),
        dropout=dropout,
        frozen=frozen,
    )


def _config(transformers: Any, folder: str, name: str) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"{name} must be a folder with config.json, or in the local cache; {_line(error)}"
        ) from error


def _shape(inputs: Data | tuple[int, ...], config: Any, name: str) -> tuple[int, ...]:
    shape = inputs.input_shape if isinstance(inputs, Data) else tuple(inputs)
    assert shape is not None  # texts have one
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


def _tokenizer(transformers: Any, folder: str, name: str, config: Any) -> Any:
    # Without any of its files transformers makes a tokenizer that knows no words.
    if Path(folder).is_dir() and not any((Path(folder) / f).exists() for f in TOKENIZER_FILES):
        raise InputError(
            f"{name} must have a tokenizer beside config.json ({', '.join(TOKENIZER_FILES[:2])} …);"
            f" {folder} holds none. Save it there: `tokenizer.save_pretrained({folder!r})`."
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_fast=True
        )
    except MemoryError:
        raise
    except Exception as error:  # a missing or damaged tokenizer fails in many ways
        raise InputError(
            f"{name} must have a tokenizer beside config.json; {_line(error)}. Save it there: "
            f"`tokenizer.save_pretrained({folder!r})`."
        ) from error
    known = int(config.vocab_size)
    if len(tokenizer) > known:
        raise InputError(
            f"{name}: its tokenizer knows {len(tokenizer):,} tokens, its model {known:,}; the "
            "tokenizer is of another model. Put the files of one model into the folder."
        )
    return tokenizer


def _model(transformers: Any, config: Any, weights: str | None, name: str) -> Any:
    if weights is None:
        return transformers.AutoModel.from_config(config)
    try:
        return transformers.AutoModel.from_pretrained(
            weights, use_safetensors=True, local_files_only=True, trust_remote_code=False
        ).float()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`weights` of {name} must be a folder with model.safetensors that fits its config; "
            f"{_line(error)}"
        ) from error


def _length(given: int | None, tokenizer: Any, config: Any, name: str) -> int:
    positions = int(config.to_dict().get("max_position_embeddings") or LONGEST)
    # RoBERTa counts positions from after its padding.
    positions -= 2 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
    most = min(positions, int(min(tokenizer.model_max_length, 2**31)))
    if given is None:
        return min(most, LONGEST)
    if given > most:
        raise InputError(
            f"`max_length` of {name} must be at most {most}, its positions; got {given}."
        )
    return given


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
