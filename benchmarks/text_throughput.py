"""How much of a bare torch loop's speed training on texts keeps.

    python -m benchmarks text_throughput

Same network, loss, optimizer and batches; CPU time of one epoch, in turns, one thread. The bare
loop has the texts encoded, as ours has: of tf-idf a scipy matrix it takes rows from, of the encoder
lists of tokens it pads. The encoder needs transformers and is left out without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import credibly as cr
from benchmarks.timing import in_turns, median, ratio
from credibly.data import Data
from credibly.data.token_rows import Tensors
from credibly.train import Network
from credibly.train.defaults import resolve
from credibly.train.distributed import EpochEvaluator, build_accelerator, epoch_batches
from credibly.train.fitting import build_loss, build_model
from credibly.train.optimizer import build_optimizer
from credibly.train.training_loop import Trainer

WORDS, LABELS = 20_000, 90
CASES = {"tfidf": (4000, 60), "hf encoder, 2 layers of 128": (256, 40)}
"""By network: rows, and words per text on average."""

BAR = 0.80


def run() -> list[dict[str, object]]:
    torch.set_num_threads(1)
    return [_row(name) for name in CASES if name == "tfidf" or find_spec("transformers")]


def _row(name: str) -> dict[str, object]:
    rows, words = CASES[name]
    data = _texts(rows, words)
    with tempfile.TemporaryDirectory() as folder:
        model = "tfidf" if name == "tfidf" else f"hf:{_encoder(Path(folder))}"
        settings = Network(model=model, batch_size=64, checkpoint_seconds=1e9)
        settings = resolve(settings, data)
        bare = _bare_tfidf if name == "tfidf" else _bare_encoder
        loops = {"bare": bare(data, settings), "ours": _ours(data, settings, Path(folder) / "s")}
        seconds = in_turns(loops, repeats=7, at_least=0.0)
    kept = 1 / ratio(seconds, "ours", "bare")
    speeds = {each: f"{rows / median(seconds[each]):,.0f} rows/s" for each in loops}
    return {"network": name, **speeds, "kept": f"{kept:.0%}", "bar": f"≥ {BAR:.0%}"}


def _texts(rows: int, words: int) -> Data:
    """Texts with word frequencies like those of a language, of very different lengths."""
    generator = np.random.default_rng(0)
    rates = 1 / np.arange(1, WORDS + 1)
    lengths = generator.geometric(1 / words, rows)
    drawn = generator.choice(WORDS, int(lengths.sum()), p=rates / rates.sum())
    cuts = np.split(drawn, np.cumsum(lengths)[:-1])
    texts = [" ".join(f"w{number}" for number in cut) for cut in cuts]
    targets = (generator.random((rows, LABELS)) < 0.02).astype(np.float32)
    return Data([f"label {n}" for n in range(LABELS)], targets, texts=texts)


def _encoder(folder: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, PreTrainedTokenizerFast

    words = {"[PAD]": 0, "[UNK]": 1} | {f"w{number}": number + 2 for number in range(5000)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128
    )
    fast.save_pretrained(str(folder))
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 512}
    BertConfig(
        vocab_size=len(words), **sizes, num_attention_heads=2, max_position_embeddings=128
    ).save_pretrained(str(folder))
    return folder


def _parts(data: Data, settings: Network) -> tuple[Any, Any]:
    criterion = build_loss(settings, data, len(data))
    return build_model(settings, data, criterion, 0), criterion


def _ours(data: Data, settings: Network, folder: Path) -> Callable[[], None]:
    model, criterion = _parts(data, settings)
    dataset = data.encoded_by(model.encode).torch_dataset(train=True)
    trainer = Trainer(
        *(settings, model, criterion, dataset, EpochEvaluator(settings, dataset, data.targets)),
        accelerator=build_accelerator(settings.precision),
        folder=folder,
    )

    def epoch() -> None:
        trainer._train_epoch()
        trainer.progress.batch, trainer.progress.loss_sum = 0, 0.0

    return epoch


def _loop(
    model: Any, settings: Network, batches: Any, inputs: Callable[[Any], Any], targets: Any
) -> Callable[[], None]:
    """What one would write by hand."""
    loss = nn.BCEWithLogitsLoss()
    optimizer = build_optimizer(settings, model, cr.losses.BCE(), on_cpu=False)

    def epoch() -> None:
        model.train()
        for rows in batches():
            optimizer.zero_grad()
            loss(model(inputs(rows)), targets[rows]).backward()
            optimizer.step()

    return epoch


def _bare_tfidf(data: Data, settings: Network) -> Callable[[], None]:
    model, _ = _parts(data, settings)
    matrix, targets = model.encode(data.texts).matrix, torch.from_numpy(data.targets)

    def inputs(rows: Any) -> Tensors:
        chosen = matrix[rows.numpy()]
        return Tensors(
            len(rows),
            terms=torch.from_numpy(chosen.indices),
            values=torch.from_numpy(chosen.data),
            starts=torch.from_numpy(chosen.indptr[:-1]),
        )

    assert settings.batch_size is not None
    size = settings.batch_size
    return _loop(model, settings, lambda: epoch_batches(len(data), size, 0, 0), inputs, targets)


def _bare_encoder(data: Data, settings: Network) -> Callable[[], None]:
    model, _ = _parts(data, settings)
    encoded = model.encode(data.texts)
    tokens = [
        torch.from_numpy(each)
        for each in np.split(encoded.columns["input_ids"], encoded.starts[1:-1])
    ]
    targets = torch.from_numpy(data.targets)

    def inputs(rows: Any) -> Tensors:
        chosen = [tokens[int(row)] for row in rows]
        ids = nn.utils.rnn.pad_sequence(chosen, batch_first=True)
        lengths = torch.tensor([len(each) for each in chosen])
        mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
        return Tensors(len(rows), input_ids=ids, attention_mask=mask)

    assert settings.batch_size is not None
    size = settings.batch_size
    batches = lambda: epoch_batches(len(data), size, 0, 0, encoded.lengths)  # noqa: E731
    return _loop(model, settings, batches, inputs, targets)


if __name__ == "__main__":
    from benchmarks.__main__ import show

    show(run())
