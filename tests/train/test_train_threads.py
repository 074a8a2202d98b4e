"""Small tables are trained with one thread, and the caller's threads come back."""

import pytest
import torch

import credibly as cr
from credibly.train import fit, recipe
from credibly.train.distributed import SMALL, threads_for


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("entries", "expected"), [(0, 1), (SMALL, 1), (SMALL + 1, 2)])
def test_only_small_matrices_are_limited(entries, expected, two_threads):
    with threads_for(entries):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), threads_for(entries):
        raise ZeroDivisionError
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
