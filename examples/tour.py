"""All steps in one script: data → scores → loss → probabilities → sets and search → report.

Run it with `python examples/tour.py`; it takes a few seconds and needs nothing but credibly.
"""

import numpy as np
import torch

import credibly as cr

# Data: 2000 rows, eight labels, true probabilities known. Zero, one or many labels per row.
labels = ["fork", "apple", "knife", "plate", "cup", "bread", "candle", "flower"]
rng = np.random.default_rng(0)
features = torch.from_numpy(rng.normal(size=(2000, 12)).astype(np.float32))
truth = torch.sigmoid(features @ torch.from_numpy(rng.normal(size=(12, 8)).astype(np.float32)) - 2)
targets = torch.bernoulli(truth, generator=torch.Generator().manual_seed(0))
fit, held_out, test = slice(0, 1000), slice(1000, 1500), slice(1500, 2000)

# Scores and a loss. The loss owns its link, so the last biases can start at the label rates.
torch.manual_seed(0)
loss = cr.losses.from_name("spa+lpr")
model = torch.nn.Linear(12, 8)
with torch.no_grad():
    model.weight.zero_()
    model.bias.copy_(loss.initial_scores(targets[fit].mean(0)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
for _ in range(200):
    optimizer.zero_grad()
    loss(model(features[fit]), targets[fit]).backward()
    optimizer.step()
print(cr.losses.audit(loss.loss), "\n")

# Probabilities: the link, then an affine map fitted on held-out rows.
with torch.no_grad():
    scores = model(features)
    log_odds = loss.log_odds(scores)
calibrator = cr.calibrate.Affine().fit(log_odds[held_out], targets[held_out])
maps = {"a sigmoid, by habit": scores, "the loss's link": log_odds}
maps["the link, calibrated"] = calibrator.transform(log_odds)
for name, mapped in maps.items():
    probabilities = torch.sigmoid(mapped)
    nll = cr.metrics.log_loss(probabilities[test], targets[test])
    divergence = cr.metrics.kl_to_truth(probabilities[test], truth[test])
    print(f"{name:21s} log loss {nll:.4f}, KL to the true probabilities {divergence:.4f}")

# Decide: two labels per row on average, guaranteed in expectation for new rows.
decision = cr.decide.AverageSize(2, guarantee="expected").fit(probabilities[held_out])
sets = decision.predict(probabilities[test])
covered = cr.metrics.set_coverage(sets, targets[test])
print(
    f"\n{decision.statement}\nmean size {sets.sum(1).float().mean():.2f}, {covered:.0%} covered\n"
)

# The hub: one file that everything downstream reads.
predictions = cr.Predictions.from_arrays(
    probabilities=probabilities[test], targets=targets[test].int(), labels=labels
)
predictions.write("predictions.parquet")

# Retrieve: fork and apple, no knife. The answer knows how many hits to expect.
answer = cr.retrieve.search("predictions.parquet", "+fork +apple -knife", top=3)
print(f"{answer.query}: {answer.expected_hits:.1f} hits expected, {answer.known_hits} real")
for hit in answer.hits:
    print(f"  row {hit.id}: {hit.probability:.2f}")

# Look: one self-contained page.
print(f"\nReport: {cr.app.report.write(['predictions.parquet'], 'report.html', resamples=50)}")
