"""Names of losses: the table that the command line reads without importing torch."""

from __future__ import annotations

import pytest

import credibly as cr
from credibly import losses, names


def test_the_names_known_without_torch_are_those_of_the_package():
    built = {
        name: type(losses.from_name(name, num_labels=4, num_rows=8, average_size=2)).__name__
        for name in losses.names()
    }
    missing = [
        f'    "{name}": "{kind}",' for name, kind in built.items() if name not in names.LOSSES
    ]
    assert not missing, "add to LOSSES in src/credibly/names.py:\n" + "\n".join(missing)
    assert built == names.LOSSES


FOREIGN = {
    "clip": (losses.Asymmetric, "`margin`"),
    "disable_torch_grad_focal_loss": (losses.Asymmetric, "`detach_weight`"),
    "eps": (losses.AsymmetricSingleLabel, "`smoothing`"),
    "gamma": (losses.Focal, "`gamma_pos` and `gamma_neg`"),
    "Tp": (losses.TwoWay, "`temperature_pos`"),
    "size_average": (losses.BCE, "`reduction="),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_arguments_of_other_codes_are_answered_with_ours(name):
    kind, ours = FOREIGN[name]
    with pytest.raises(cr.InputError, match=ours):
        kind(**{name: 0.05})
    with pytest.raises(cr.InputError, match=ours):
        losses.from_name(f"{kind.name}({name}=0.05)")
