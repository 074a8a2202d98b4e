"""What pages take for granted: predictions of a small model, as names and as files."""

import numpy as np
import torch

import credibly as cr

labels = ["fork", "apple", "knife", "dining table", "dog", "cat", "beach", "cow"]
generator = np.random.default_rng(0)
all_scores = generator.normal(-1, 2, (400, len(labels))).astype(np.float32)
all_targets = (generator.random(all_scores.shape) < 1 / (1 + np.exp(-all_scores))).astype(np.int8)
scores, held_out_scores, new_scores = torch.tensor(all_scores).split([200, 100, 100])
targets, held_out_targets, _ = torch.tensor(all_targets).float().split([200, 100, 100])
loss = cr.losses.SPA()
probabilities, held_out_probabilities = scores.sigmoid(), held_out_scores.sigmoid()

predictions = cr.Predictions.from_arrays(
    probabilities=probabilities.numpy(), targets=targets.numpy(), labels=labels
)
held_out = cr.Predictions.from_arrays(
    probabilities=held_out_probabilities.numpy(), targets=held_out_targets.numpy(), labels=labels
)
predictions.write("predictions.parquet")
predictions.write("test.parquet")
held_out.write("held-out.parquet")
