"""The user of Trainer or Lightning: blocks of the page on integrations, with a model of hers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import credibly as cr

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/documentation"))
import blocks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours
LABELS = ["dog", "cat", "fork"]


def run(word, names):
    """Run the blocks of the page that hold a word, in the order of the page."""
    found = [
        block
        for block in blocks.read(ROOT / "docs/guide/integrations.md")
        if block.language == "python" and word in block.code
    ]
    assert found
    for block in found:
        blocks.run(block, names, "integrations.md", lambda: "")


@pytest.fixture
def rows():
    """Texts of four words; a label is present where its word is, most of the time."""
    rng = np.random.default_rng(0)
    words = rng.integers(2, 8, size=(600, 4))
    present = np.stack([(words == place + 2).any(axis=1) for place in range(3)], axis=1)
    return words, (rng.random((600, 3)) < np.where(present, 0.9, 0.05)).astype(np.float32)


def good(predictions):
    assert predictions.labels == LABELS
    precision = cr.metrics.average_precision(predictions.probabilities, predictions.targets)
    assert np.mean(precision) > 0.6  # of rows at random: 0.5


def test_trainer(rows, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="runs in make test-frameworks")
    from tokenizers import Tokenizer, models, pre_tokenizers

    monkeypatch.chdir(tmp_path)
    known = {"[UNK]": 0, "[PAD]": 1, "dog": 2, "cat": 3, "fork": 4, "the": 5, "a": 6, "under": 7}
    made = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    data = [
        {"input_ids": torch.tensor(words), "labels": torch.tensor(truth)}
        for words, truth in zip(*rows, strict=True)
    ]
    config = transformers.BertConfig(
        vocab_size=8,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=3,
    )
    names = {
        "cr": cr,
        "transformers": transformers,
        "model": transformers.BertForSequenceClassification(config),
        "arguments": transformers.TrainingArguments(
            output_dir="out",
            num_train_epochs=8,
            per_device_train_batch_size=20,
            learning_rate=3e-3,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        ),
        "train": data[:400],
        "held_out": data[400:],
        "names": LABELS,
        "tokenizer": transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]"
        ),
    }
    run("integrations.huggingface", names)
    good(names["result"].predictions)
    found = {each["label"]: each["score"] for each in names["tagger"]("the dog under a")}
    assert set(found) == set(LABELS)
    assert found["dog"] > max(found["cat"], found["fork"])
    assert "my-tagger" in names["card"]


def test_lightning(rows, tmp_path, monkeypatch):
    lightning = pytest.importorskip("lightning", reason="runs in make test-frameworks")
    from torch.utils.data import DataLoader, TensorDataset

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    features = 10.0 * torch.nn.functional.one_hot(torch.tensor(rows[0]), 8).sum(1)
    train, held_out = (
        TensorDataset(features[part], torch.tensor(rows[1])[part])
        for part in (slice(400), slice(400, 600))
    )
    names = {
        "cr": cr,
        "lightning": SimpleNamespace(Trainer=partial(lightning.Trainer, max_epochs=3)),
        "network": torch.nn.Linear(8, 3),
        "labels": LABELS,
        "train_loader": DataLoader(train, batch_size=4),
        "held_out_loader": DataLoader(held_out, batch_size=50),
    }
    run("integrations.lightning", names)
    good(cr.Predictions.read("predictions.parquet"))
    assert cr.runtime.load("predictions.pipeline.json").labels == LABELS
