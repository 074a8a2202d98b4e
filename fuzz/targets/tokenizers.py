"""Tokenizers of transformers; nothing is tried where that is not installed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from fuzz.targets import FolderAttack

MODULES = ("credibly.models.text",)
FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "dog", "##s", "a", "b", "ab"]
ABOUT = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "model_max_length": 8}
CONFIG = {"model_type": "bert", "vocab_size": 16, "hidden_size": 4, "num_hidden_layers": 1}
CONFIG |= {"num_attention_heads": 1, "intermediate_size": 4, "max_position_embeddings": 16}


class Target(FolderAttack):
    """``hf:FOLDER`` and three texts; the first byte says which of its files is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.there = find_spec("transformers") is not None
        whole = {"tokenizer.json": self._made("WordPiece"), "config.json": json.dumps(CONFIG)}
        self.whole = {**whole, "tokenizer_config.json": json.dumps(ABOUT)}

    def _made(self, kind: str) -> str:
        if not self.there:
            return "{}"
        library = import_module("tokenizers")
        numbers = {word: number for number, word in enumerate(WORDS)}
        model = getattr(library.models, kind)
        if kind == "BPE":
            made = library.Tokenizer(model(numbers, [("a", "b")], unk_token="[UNK]"))
            made.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"\s+"), "removed")
        else:
            made = library.Tokenizer(model(numbers, unk_token="[UNK]"))
            made.normalizer = library.normalizers.BertNormalizer()
            made.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
        made.add_special_tokens(["[PAD]", "[CLS]"])
        return made.to_str()

    def seeds(self) -> Iterable[bytes]:
        yield b"0" + self._made("WordPiece").encode()
        yield b"0" + self._made("BPE").encode()
        yield b"1" + json.dumps(ABOUT).encode()
        yield b'1{"padding_side": "left", "added_tokens_decoder": {"5": {"content": "red"}}}'
        yield b"2" + "\n".join(WORDS).encode()
        yield b'3{"cls_token": {"content": "[CLS]", "lstrip": false}}'

    def read(self, data: bytes) -> None:
        from credibly.models.text import build_text

        if not self.there:
            return
        name = FILES[{b"0": 0, b"1": 1, b"2": 2}.get(data[:1], 3)]
        for each in FILES:
            (self.folder / each).unlink(missing_ok=True)
        for each, whole in self.whole.items():
            if name != "vocab.txt" or each == "config.json":
                self.put(each, whole.encode())
        self.put(name, data[1:])
        model = build_text(f"hf:{self.folder}", (1,), 2)
        rows = model.encode(np.array([["red dogs"], [""], ["été 🙂 ab"]], object))
        model(rows.batch(np.arange(3)))
