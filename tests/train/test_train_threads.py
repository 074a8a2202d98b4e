"""Small tables are trained with one thread, and the caller's threads come back."""

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.train import fit, recipe


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("width", "expected"), [(5000, 1), (5001, 2)])
def test_only_small_matrices_are_limited(width, expected, two_threads):
    """The limit is a million entries. It is lifted after an error too."""
    seen = []

    class Stop(cr.train.Callback):
        def on_epoch(self, figures):
            seen.append(torch.get_num_threads())
            raise ZeroDivisionError

    features = np.random.default_rng(0).normal(size=(200, width)).astype(np.float32)
    rows = cr.data.from_arrays(features=features, targets=features[:, :2] > 0)
    with pytest.raises(ZeroDivisionError):
        fit(rows, recipe(model="linear", epochs=1), callback=Stop())
    assert seen == [expected]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("model", ["linear", "mlp", "forest", "boosting"])
def test_training_a_table_uses_one_thread(model, two_threads, tmp_path, monkeypatch):
    from threadpoolctl import threadpool_info

    seen = []
    forward = cr.losses.BCE.forward

    def watched(*given, **named):
        libraries = [each["num_threads"] for each in threadpool_info()]
        seen.append((torch.get_num_threads(), max(libraries)))
        return forward(*given, **named)

    monkeypatch.setattr(cr.losses.BCE, "forward", watched)
    settings = recipe(loss="bce", model=model)
    fit(cr.data.synthetic(120), settings, folder=tmp_path / "run")
    assert set(seen) <= {(1, 1)}
    assert seen or model in ("forest", "boosting")
    assert torch.get_num_threads() == 2
