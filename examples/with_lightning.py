"""Lightning: the callback calibrates and writes predictions at the end of `fit`."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import credibly as cr

torch.manual_seed(0)
features = torch.randn(3000, 20)
targets = torch.bernoulli(torch.sigmoid(features @ torch.randn(20, 8) / 2 - 2))
train = DataLoader(TensorDataset(features[:2000], targets[:2000]), batch_size=100, shuffle=True)
held_out = DataLoader(TensorDataset(features[2000:], targets[2000:]), batch_size=100)

network = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
module = cr.integrations.lightning.Module(network, "spa")
calibrate = cr.integrations.lightning.Calibrate(out="predictions.parquet")
trainer = pl.Trainer(
    max_epochs=10, callbacks=[calibrate], accelerator="cpu", logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
)  # fmt: skip
trainer.fit(module, train, held_out)
print(calibrate.result)
