"""Rates of labels in training and elsewhere, and outputs of a model in files."""

import numpy as np

train_rates, new_rates = 0.2, 0.5

names = ["cat", "dog", "cow"]
rng = np.random.default_rng(0)
logits = rng.normal(-1, 2, (120, 3))
rows = [f"{row:04d}" for row in range(120)]
truth = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
np.savez("val.npz", scores=logits, labels=np.array(names), ids=np.array(rows))
np.savez("test.npz", scores=logits[:20], labels=np.array(names))
lines = [f"{row},{','.join(map(str, values))}" for row, values in zip(rows, truth, strict=True)]
with open("y.csv", "w") as file:
    file.write("\n".join([f"id,{','.join(names)}", *lines]) + "\n")
