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
    assert built == names.LOSSES
    exported = [kind for kind in vars(losses).values() if isinstance(kind, type)]
    kinds = [kind for kind in exported if issubclass(kind, losses.Loss)]
    around_others = ("Composite", "LabelPairs", "Published", "TwoWayTerm")
    missing = [
        f'    "{kind.name}": "{kind.__name__}",'
        for kind in kinds
        if not kind.__abstractmethods__ and kind.__name__ not in around_others
        if names.LOSSES.get(kind.name) != kind.__name__
    ]
    assert not missing, "add to LOSSES in src/credibly/names.py:\n" + "\n".join(missing)


FOREIGN = {
    "clip": (losses.Asymmetric, "`margin`"),
    "disable_torch_grad_focal_loss": (losses.Asymmetric, "`detach_weight`"),
    "eps": (losses.AsymmetricSingleLabel, "`smoothing`"),
    "gamma": (losses.Focal, "`gamma_pos` and `gamma_neg`"),
    "Tp": (losses.TwoWay, "`temperature_pos`"),
    "size_average": (losses.BCE, "`reduction="),
    "alpha": (losses.Focal, r"`BCE\(pos_weight=alpha"),
    "pos_weight": (losses.Asymmetric, r"`BCE\(pos_weight="),
    "smoothing": (losses.Asymmetric, "soft targets"),
    "sum_classes": (losses.BCE, "`reduction='rows'`"),
    "target_threshold": (losses.BCE, "targets of 0 and 1"),
    "weight": (losses.SPA, "Pass it with the scores"),
    "label_smoothing": (losses.Softmax, "soft targets"),
    "gama_neg": (losses.Asymmetric, "Did you mean 'gamma_neg'"),
}


def test_own_losses_may_have_arguments_of_these_names():
    class Mine(losses.Focal):
        def __init__(self, gamma: float = 2.0) -> None:
            super().__init__(gamma, gamma)

    assert Mine(gamma=3.0).gamma_pos == 3.0

    class Passing(losses.SPA):
        def __init__(self, **options: float) -> None:
            super().__init__()

    assert Passing(clip=1.0).reduction == "mean"


@pytest.mark.parametrize("name", FOREIGN)
def test_arguments_of_other_codes_are_answered_with_ours(name):
    kind, ours = FOREIGN[name]
    with pytest.raises(cr.InputError, match=ours):
        kind(**{name: 0.05})
    with pytest.raises(cr.InputError, match=ours):
        losses.from_name(f"{kind.name}({name}=0.05)")
