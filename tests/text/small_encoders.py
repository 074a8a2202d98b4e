"""Small encoders of transformers, made from configs, with their tokenizers; never downloaded."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = [
    *("red", "green", "dog", "cat", "tree", "of", "the", "car", "is", "it", "a", "there", "what"),
    *("color", "how", "many", "fish", "b", "c"),
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {
    "vocab_size": len(SPECIAL) + len(WORDS) + 26,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def write_tokenizer(folder: Path, words=WORDS) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL, *words, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    vocabulary = {word: number for number, word in enumerate(names)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    fast.save_pretrained(str(folder))


def make_bert(folder: Path, weights: bool = True) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    torch.manual_seed(0)
    config = BertConfig(**SIZES, num_hidden_layers=2, max_position_embeddings=64)
    if weights:
        BertModel(config).save_pretrained(str(folder), safe_serialization=True)
    config.save_pretrained(str(folder))
    write_tokenizer(folder)
    return folder


def make_lxmert(folder: Path, width: int = 16) -> Path:
    from transformers import LxmertConfig

    folder.mkdir(parents=True)
    layers = {"l_layers": 1, "x_layers": 1, "r_layers": 1}
    config = LxmertConfig(
        **SIZES, **layers, visual_feat_dim=width, visual_pos_dim=4, max_position_embeddings=64
    )
    config.save_pretrained(str(folder))
    write_tokenizer(folder)
    return folder


def edit_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
