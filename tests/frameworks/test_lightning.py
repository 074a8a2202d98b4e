"""The real Lightning: what the callback writes does not depend on the number of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import credibly as cr
from credibly import InputError

pl = pytest.importorskip("lightning.pytorch", reason="runs in make test-frameworks")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

SCRIPT = Path(__file__).with_name("lightning_fit.py")


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Two processes and one, the same rows in each step, in processes of their own."""
    found = {}
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp(f"fit{processes}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        result = subprocess.run(
            [sys.executable, "-W", "ignore", str(SCRIPT), str(processes), str(folder)],
            capture_output=True, text=True, timeout=1800, env=environment,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-2000:]
        found[processes] = folder
    return found


@pytest.mark.parametrize("loss", ["spa", "twl"])
def test_two_processes_write_what_one_writes(fits, loss):
    one, two = (
        cr.Predictions.read(fits[processes] / loss / "predictions.parquet") for processes in (1, 2)
    )
    assert one.labels == two.labels == ["a", "b", "c"]
    assert one.ids.tolist() == two.ids.tolist() == [f"row {i}" for i in range(101)]
    np.testing.assert_array_equal(one.targets, two.targets)
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-4)
    np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-4)


@pytest.mark.parametrize("loss", ["spa", "twl"])
def test_the_pipeline_beside_maps_scores_to_the_probabilities_written(fits, loss):
    folder = fits[2] / loss
    predictions = cr.Predictions.read(folder / "predictions.parquet")
    pipeline = cr.Pipeline.read(folder / "predictions.pipeline.json")
    np.testing.assert_allclose(
        pipeline.probabilities(predictions.scores), predictions.probabilities, atol=1e-6
    )
    numbers = json.loads((folder / "numbers.json").read_text())
    assert numbers["predicted"] == pytest.approx(predictions.probabilities.mean(), abs=1e-5)
    assert {"val_nll", "val_map"} <= numbers["logged"].keys() or loss == "twl"


class Plain(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)

    def forward(self, inputs):
        return self.layer(inputs)

    def training_step(self, batch, _index):
        return torch.nn.functional.binary_cross_entropy_with_logits(self(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(rows=40):
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(rows, 2, generator=generator), torch.randint(0, 2, (rows, 3)).float()
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=8)


def trainer(tmp_path, **options):
    return pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path, **options,
    )  # fmt: skip


def test_a_module_of_one_s_own_needs_the_loss_only(tmp_path):
    calibrate = cr.integrations.lightning.Calibrate("bce", out=tmp_path / "p.parquet")
    trainer(tmp_path, callbacks=[calibrate]).fit(Plain(), loader(), loader())
    assert len(cr.Predictions.read(tmp_path / "p.parquet")) == 40
    assert calibrate.result.loss == "bce"


def test_what_would_fail_after_training_is_refused_before(tmp_path):
    from credibly.integrations.lightning import Calibrate, Module

    with pytest.raises(InputError, match="needs the loss"):
        trainer(tmp_path, callbacks=[Calibrate()]).fit(Plain(), loader(), loader())
    bad = Calibrate("bce", out=tmp_path / "p.parquet" / "x")
    (tmp_path / "p.parquet").write_text("a file")
    with pytest.raises(InputError, match="is not a folder"):
        trainer(tmp_path, callbacks=[bad]).fit(Plain(), loader(), loader())
    with pytest.raises(InputError, match="row numbers"):
        Module(torch.nn.Linear(2, 3), cr.losses.OnlineEstimation(4, 3, 1.0))
