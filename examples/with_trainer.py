"""Hugging Face Trainer: a small BERT on made-up texts, accumulated steps, and a model card."""

import numpy as np
import torch
import transformers

import credibly as cr

# Texts as token ids; a label is present where one of its words is, most of the time.
rng = np.random.default_rng(0)
tokens = rng.integers(10, 50, size=(1200, 8))
present = np.stack([(tokens % 20 == label).any(axis=1) for label in range(4)], axis=1)
targets = (rng.random((1200, 4)) < np.where(present, 0.8, 0.05)).astype(np.float32)
rows = [
    {"input_ids": torch.tensor(ids), "labels": torch.tensor(y)}
    for ids, y in zip(tokens, targets, strict=True)
]
train, held_out = rows[:800], rows[800:]

model = transformers.BertForSequenceClassification(
    transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, num_labels=4,
    )
)  # fmt: skip
trainer = transformers.Trainer(
    model=model,
    args=transformers.TrainingArguments(
        output_dir="trainer",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_train_epochs=6,
        learning_rate=3e-3,
        eval_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=train,
    eval_dataset=held_out,
    compute_loss_func=cr.integrations.huggingface.compute_loss_func("asl"),
    compute_metrics=cr.integrations.huggingface.compute_metrics("asl"),
)
trainer.train()

output = trainer.predict(held_out)
names = ["red", "green", "blue", "grey"]
result = cr.calibrate_scores(output.predictions, output.label_ids, loss="asl", labels=names)
print(result)
cr.integrations.huggingface.save("my-tagger", model, result.pipeline)
with open("README.md", "w", encoding="utf-8") as card:
    card.write(cr.integrations.huggingface.model_card(result, "my-tagger"))
