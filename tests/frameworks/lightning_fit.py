"""Fit, calibrate and write on some processes: `python lightning_fit.py PROCESSES FOLDER`."""

import json
import os
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from credibly.integrations.lightning import Calibrate, Module


def rows(number, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(number, 4, generator=generator)
    truth = torch.sigmoid(2 * inputs[:, :3] - 1)
    return TensorDataset(inputs, torch.bernoulli(truth, generator=generator))


def fit(loss, processes, folder):
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 3)
    module = Module(network, loss, lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    calibrate = Calibrate(
        out=folder / "predictions.parquet", labels="abc", ids=[f"row {i}" for i in range(101)]
    )
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[calibrate],
        default_root_dir=folder,
    )
    # Lightning's own sampler shuffles; the comparison needs the same rows in every step.
    own = range(int(os.environ.get("LOCAL_RANK", "0")), 64, processes)
    train = DataLoader(rows(64, 0), batch_size=16 // processes, sampler=own)
    held_out = DataLoader(rows(101, 1), batch_size=16)
    trainer.fit(module, train, held_out)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.global_rank == 0:
        inputs = rows(101, 1).tensors[0]
        with torch.no_grad():
            predicted = float(module.predict_step(inputs, 0).mean())
        numbers = {"logged": logged, "predicted": predicted}
        (folder / "numbers.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    for each in ("spa", "twl"):
        out = Path(sys.argv[2]) / each
        out.mkdir(exist_ok=True)
        fit(each, int(sys.argv[1]), out)
