"""The real Trainer: accumulated steps equal whole ones, metrics by name, a card that parses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import credibly as cr
from credibly import InputError
from credibly.integrations import huggingface

transformers = pytest.importorskip("transformers", reason="runs in make test-frameworks")
yaml = pytest.importorskip("yaml")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

ROWS, FEATURES, LABELS = 32, 6, 5


class Network(torch.nn.Module):
    """A linear model that answers as transformers' models do."""

    def __init__(self, outputs=LABELS):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(FEATURES, outputs)

    def forward(self, features, labels=None):
        return {"logits": self.layer(features)}


def rows(number=ROWS, unknown=False):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(number, FEATURES, generator=generator)
    labels = (torch.rand(number, LABELS, generator=generator) < 0.4).float()
    labels[0] = 0
    if unknown:  # far more in the first half: micro-batches differ in what they know
        few = (
            torch.rand(number, LABELS, generator=generator)
            < torch.linspace(0.8, 0, number)[:, None]
        )
        labels[few] = -100.0
    return [{"features": f, "labels": y} for f, y in zip(features, labels, strict=True)]


def trained(loss, tmp_path, batch, accumulation, unknown=False, **options):
    """Return the weights after one step of plain gradient descent, and the trainer."""
    model = Network(loss.num_outputs(LABELS))
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / f"{batch}x{accumulation}"),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        label_names=["labels"],
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=rows(unknown=unknown),
        compute_loss_func=huggingface.compute_loss_func(loss),
        **options,
    )
    trainer.train()
    return model.layer.weight.detach().clone(), trainer


UNCOUPLED = ["bce", "asl", "focal", "spa", "spa+lpr", "softmax(zero_label=uniform)"]


@pytest.mark.parametrize("name", UNCOUPLED)
def test_a_step_at_batch_8_times_4_equals_one_at_32(name, tmp_path):
    loss = cr.losses.from_name(name)
    start = Network().layer.weight
    whole, _ = trained(loss, tmp_path, 32, 1)
    parts, _ = trained(loss, tmp_path, 8, 4)
    assert (whole - start).abs().max() > 1e-3
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["bce", "spa", "asl"])
def test_unknown_labels_count_neither_in_parts_nor_in_the_whole(name, tmp_path):
    loss = cr.losses.from_name(name)
    whole, _ = trained(loss, tmp_path, 32, 1, unknown=True)
    parts, _ = trained(loss, tmp_path, 8, 4, unknown=True)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)
    # and the whole step is the plain gradient of the loss
    model, batch = Network(), rows(unknown=True)
    features = torch.stack([row["features"] for row in batch])
    loss(model.layer(features), torch.stack([row["labels"] for row in batch])).backward()
    expected = model.layer.weight.detach() - model.layer.weight.grad
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-6)


def test_metrics_of_the_trainer_are_those_of_the_link(tmp_path):
    loss = cr.losses.SPA()
    _, trainer = trained(
        loss,
        tmp_path,
        32,
        1,
        eval_dataset=rows(),
        compute_metrics=huggingface.compute_metrics(loss),
    )
    numbers = trainer.evaluate()
    output = trainer.predict(rows())
    probabilities = loss.probabilities(output.predictions)
    expected = cr.metrics.scorers.measure(output.predictions, probabilities, output.label_ids)
    for name, value in expected.items():
        assert numbers[f"eval_{name}"] == pytest.approx(value, rel=1e-5)
    expected_loss = loss(torch.tensor(output.predictions), torch.tensor(output.label_ids))
    assert numbers["eval_loss"] == pytest.approx(expected_loss.item(), rel=1e-4)


def test_the_card_parses_and_its_table_has_every_stage(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(400, 3))
    targets = generator.random((400, 3)) < 1 / (1 + np.exp(-2 * scores))
    labels = ["dog", "din`ing |\ntable", "cat"]
    result = cr.calibrate_scores(scores, targets, "asl", labels=labels)
    text = huggingface.model_card(
        result, 'my "tagger"', dataset="toy", license="mit", language=["en"], base_model="a/b"
    )
    card = hub.ModelCard(text)
    assert card.data.base_model == "a/b"
    measured = {each.metric_name: each.metric_value for each in card.data.eval_results}
    assert measured["NLL"] == pytest.approx(list(result.stages.values())[-1]["NLL"], abs=1e-4)
    for stage, numbers in result.stages.items():
        assert f"| {stage} | {numbers['NLL']:.4f}" in text
    entries = [line.split("|") for line in text.splitlines() if line.startswith("| 0.")]
    assert sum(int(cells[3].replace(",", "")) for cells in entries) == 200 * 3


def test_outputs_without_logits_and_batches_without_labels_are_refused():
    function = huggingface.compute_loss_func("bce")
    with pytest.raises(InputError, match="'logits'; got \\['hidden'\\]"):
        function({"hidden": torch.zeros(1, 2)}, torch.zeros(1, 2))
    with pytest.raises(InputError, match="must hold 'labels'"):
        function({"logits": torch.zeros(1, 2)}, None)


def test_the_pipeline_gives_calibrated_probabilities_by_name(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "[PAD]": 1, "dog": 2, "cat": 3, "fork": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]"
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=5, intermediate_size=8, num_labels=3, pad_token_id=1, **sizes
    )
    model = transformers.BertForSequenceClassification(config).eval()
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 3))
    labels = ["animal", "cutlery", "pet"]
    result = cr.calibrate_scores(scores, rng.random((300, 3)) < 0.1, loss="asl", labels=labels)
    huggingface.save(tmp_path / "tagger", model, result.pipeline, tokenizer)

    huggingface.register()
    tagger = transformers.pipeline("multi-label", model=str(tmp_path / "tagger"))
    texts = ["dog and fork", "cat"]
    found, alone = tagger(texts), tagger(texts[0])
    assert tagger.model.config.id2label == dict(enumerate(labels))
    for text, rows in zip(texts, found, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits.numpy()
        expected = dict(zip(labels, result.pipeline.probabilities(logits)[0], strict=True))
        assert {row["label"]: row["score"] for row in rows} == pytest.approx(expected, abs=1e-6)
        assert rows == sorted(rows, key=lambda row: -row["score"])
    assert alone == found[0]
    assert tagger(texts[0], top_k=1) == alone[:1]
    with pytest.raises(InputError, match="must have label names"):
        huggingface.save(tmp_path, model, cr.Pipeline("asl"))
