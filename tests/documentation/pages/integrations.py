"""The result that the page computes with Trainer."""

import numpy as np

import credibly as cr

scores = np.random.default_rng(0).normal(-1, 2, (200, 3))
targets = np.random.default_rng(1).random(scores.shape) < 1 / (1 + np.exp(-scores))
result = cr.calibrate_scores(scores, targets, loss="spa+lpr")
