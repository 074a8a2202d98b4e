"""Last layer and loss in one gives what the two give one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loss_instances import PATHS
from scipy import sparse

from credibly import losses as cl
from credibly.checks import InputError
from credibly.targets import SparseTargets

LOSSES = [
    cl.BCE(),
    cl.BCE(pos_weight=3.0),
    cl.BCE(pos_weight=torch.linspace(0.5, 2, 23)),
    cl.SPA(),
    cl.SPA(label_weight=torch.linspace(0, 2, 23)),
    cl.SPA(reduction="sum"),
    cl.SPA(reduction="rows"),
    cl.Focal(),
    cl.Asymmetric(),
    cl.Asymmetric(detach_weight=True),
    cl.Composite(
        positive=lambda v: torch.nn.functional.softplus(-2 * v),
        negative=lambda v: torch.nn.functional.softplus(v + 1),
    ),
    cl.Softmax(),
    cl.Softmax(reduction="sum"),
    cl.Softmax(zero_label="uniform", zero_weight=0.5),
    cl.Softmax(zero_label="uniform"),
    cl.Softmax(zero_label="max_confidence"),
    cl.Softmax(zero_label="none_class"),
    cl.TwoWay(ways="samples"),
    cl.TwoWay(ways="labels"),
    cl.TwoWay(margin=0.3),
    cl.Quasibinary(),
    cl.Quasibinary(penalty="running"),
    cl.Quasibinary().eval(),
]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
ROWS, LABELS, WIDTH = 6, 23, 4
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # CSR tensors of torch are in beta


def by_chunks(loss, hidden, weight, bias, targets):
    """Call ``fused_linear`` with so few labels at a time that there are several chunks."""
    return cl.fused_linear(loss, hidden, weight, bias, targets, chunk=5)


def layer(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = (ROWS, WIDTH), (LABELS, WIDTH), (LABELS,)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
    ]


def dense_targets(kind):
    """0/1 with a row without labels; soft; with unknown entries and a row of them."""
    generator = torch.Generator().manual_seed(2)
    targets = (torch.rand(ROWS, LABELS, generator=generator) < 0.2).double()
    targets[0] = 0
    if kind != "hard":
        targets[1, :3] = 0.25
    if kind == "unknown":
        targets[2, ::3] = -1
        targets[3] = -1
    return targets


def fresh(loss):
    loss.load_state_dict({k: v.clone() for k, v in INITIAL[id(loss)].items()}, strict=False)
    return loss


INITIAL = {id(loss): {k: v.clone() for k, v in loss.state_dict().items()} for loss in LOSSES}


def value_and_gradients(function, parts):
    parts = [part.clone().requires_grad_() for part in parts]
    value = function(*parts)
    value.backward()
    return [value.detach(), *(part.grad for part in parts)]


def as_given(targets, form):
    if form == "dense":
        return targets
    if form == "csr":
        return targets.to_sparse_csr()
    return SparseTargets.from_dense(targets)


@each_loss
@pytest.mark.parametrize("kind", ["hard", "soft", "unknown"])
@pytest.mark.parametrize("form", ["dense", "sparse", "csr"])
def test_value_and_gradients_are_those_of_scores_and_loss(loss, kind, form):
    targets, parts = dense_targets(kind), layer()
    for _ in range(2):  # the second call of a loss with state has a past
        two = value_and_gradients(lambda h, w, b: loss(h @ w.T + b, targets), parts)
        state = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    fresh(loss)
    given = as_given(targets, form)
    for _ in range(2):
        one = value_and_gradients(lambda h, w, b: by_chunks(loss, h, w, b, given), parts)
    for name, tensor in loss.state_dict().items():
        torch.testing.assert_close(tensor, state[name])
    fresh(loss)
    for fused, plain in zip(one, two, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-12)


@each_loss
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_float32_has_the_digits_of_float32(loss, form):
    targets = dense_targets("hard")
    exact = value_and_gradients(lambda h, w, b: loss(h @ w.T + b, targets), layer())
    fresh(loss)
    given = as_given(targets.float(), form)
    fused = value_and_gradients(
        lambda h, w, b: by_chunks(loss, h, w, b, given), layer(torch.float32)
    )
    fresh(loss)
    for one, two in zip(fused, exact, strict=True):
        torch.testing.assert_close(one, two.float(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("loss", [LOSSES[10], *LOSSES[14:16], LOSSES[17], *LOSSES[18:20]], ids=str)
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("scale", [1.0, 30.0, 3e3])
def test_kernels_of_sums_agree_with_torch_at_any_range(loss, kind, scale):
    given = SparseTargets.from_dense(dense_targets(kind))
    parts = [scale * part if place else part for place, part in enumerate(layer())]
    found = []
    for path in PATHS.values():
        with path():
            found.append(
                value_and_gradients(lambda h, w, b: by_chunks(loss, h, w, b, given), parts)
            )
        fresh(loss)
    for kernel, plain in zip(*found, strict=True):
        largest = float(plain.abs().max())
        torch.testing.assert_close(kernel, plain, rtol=1e-9, atol=1e-11 * max(largest, 1e-300))


@each_loss
def test_a_second_backward_gives_the_same_gradient(loss):
    hidden, weight, bias = (part.requires_grad_() for part in layer())
    value = by_chunks(loss, hidden, weight, bias, dense_targets("soft"))
    kept = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    value.backward(retain_graph=True)
    first = weight.grad.clone()
    if not loss.has_state:  # what was remembered in between is part of the gradient
        (2 * value).backward()
        torch.testing.assert_close(weight.grad, 3 * first)
        assert all(torch.equal(kept[k], v) for k, v in loss.state_dict().items())
    fresh(loss)


def test_frozen_parts_and_a_missing_bias_need_no_gradient():
    hidden, weight, _ = layer()
    weight.requires_grad_()
    by_chunks(cl.SPA(), hidden, weight, None, dense_targets("hard")).backward()
    expected = weight.detach().clone().requires_grad_()
    cl.SPA()(hidden @ expected.T, dense_targets("hard")).backward()
    torch.testing.assert_close(weight.grad, expected.grad)
    assert hidden.grad is None
    with torch.no_grad():
        value = by_chunks(cl.SPA(), hidden, weight, None, dense_targets("hard"))
    assert not value.requires_grad


def test_class_indices_and_lists_of_labels_are_targets():
    hidden, weight, bias = layer()
    classes = torch.tensor([3, 22, -1, 0, 7, 7])
    value = by_chunks(cl.Softmax(), hidden, weight, bias, classes)
    torch.testing.assert_close(value, cl.Softmax()(hidden @ weight.T + bias, classes))
    lists = [[3], [22], [], [0], [7], [7]]
    value = by_chunks(cl.Softmax(), hidden, weight, bias, lists)
    torch.testing.assert_close(value, cl.Softmax()(hidden @ weight.T + bias, classes))


def test_half_precision_gives_half_precision_gradients():
    parts = layer(torch.float16)
    result = value_and_gradients(
        lambda h, w, b: by_chunks(cl.SPA(), h, w, b, dense_targets("hard")), parts
    )
    exact = value_and_gradients(
        lambda h, w, b: cl.SPA()(h @ w.T + b, dense_targets("hard")), layer()
    )
    assert [part.dtype for part in result] == [torch.float16] * 4
    for one, two in zip(result, exact, strict=True):
        torch.testing.assert_close(one.double(), two, rtol=0.05, atol=5e-3)


def test_scores_are_never_stored():
    seen = []
    labels = 20_000
    hidden, weight = torch.randn(8, 3), torch.zeros(labels, 3, requires_grad=True)

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.shape != weight.shape:
                seen.append(result.numel())
            return result

    with Watch():
        cl.fused_linear(
            cl.SPA(), hidden, weight, None, [[i] for i in range(8)], chunk=2048
        ).backward()
    assert max(seen) < 8 * labels / 2


ALL_AT_ONCE = [cl.LabelPairs(cl.SPA()), cl.AssumeNegative(), cl.Warp(), cl.SPA(reduction="none")]


@pytest.mark.parametrize("loss", ALL_AT_ONCE, ids=str)
@pytest.mark.parametrize("form", ["dense", "sparse", "csr"])
def test_losses_that_need_all_labels_at_once_get_them(loss, form):
    targets, parts = dense_targets("unknown"), layer()
    given = as_given(targets, form)
    one = value_and_gradients(lambda h, w, b: by_chunks(loss, h, w, b, given).sum(), parts)
    two = value_and_gradients(lambda h, w, b: loss(h @ w.T + b, targets).sum(), parts)
    for found, expected in zip(one, two, strict=True):
        torch.testing.assert_close(found, expected)


BAD = {
    "a label out of range": (
        lambda h, w, b: by_chunks(cl.SPA(), h, w, b, [[0], [99], [], [], [], []]),
        r"label numbers must lie in \[0, 22\]; got 99 in row 1",
    ),
    "too few rows": (
        lambda h, w, b: by_chunks(cl.SPA(), h, w, b, [[0]]),
        "must have 6 rows and 23 labels",
    ),
    "a label twice": (
        lambda h, w, b: by_chunks(cl.SPA(), h, w, b, [[1, 1], [], [], [], [], []]),
        "label 1 appears twice in row 0",
    ),
    "widths that differ": (
        lambda h, w, b: by_chunks(cl.SPA(), h[:, :2], w, b, dense_targets("hard")),
        r"`hidden` must be \(rows, features\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    call, message = BAD[case]
    with pytest.raises(InputError, match=message):
        call(*layer())


@pytest.mark.parametrize("seed", range(3))
def test_sparse_targets_are_the_dense_ones(seed):
    generator = np.random.default_rng(seed)
    dense = generator.choice([0, 0, 0, 1, 0.5, -1], size=(7, 5)).astype(np.float32)
    dense[2] = 0
    targets = SparseTargets.from_dense(dense)
    rows = generator.permutation(7)[:4]
    columns = generator.integers(0, 5, (7, 3))
    np.testing.assert_array_equal(targets.dense(), dense)
    np.testing.assert_array_equal(targets[rows].dense(), dense[rows])
    np.testing.assert_array_equal(targets[1:5].dense(), dense[1:5])
    np.testing.assert_array_equal(targets.at(columns), np.take_along_axis(dense, columns, 1))
    np.testing.assert_allclose(targets.label_counts(), dense.clip(0).sum(0))
    np.testing.assert_allclose(targets.row_counts(), dense.clip(0).sum(1))
    np.testing.assert_array_equal(targets.known_counts(), (dense >= 0).sum(0))
    assert targets.num_known == (dense >= 0).sum()
    tensor = torch.from_numpy(dense).to_sparse_csr()
    np.testing.assert_array_equal(SparseTargets.from_csr(tensor).dense(), dense)
    scipy_rows = sparse.csr_matrix(dense)
    np.testing.assert_array_equal(SparseTargets.from_csr(scipy_rows).dense(), dense)


def test_unsorted_labels_are_sorted_with_their_values():
    targets = SparseTargets([0, 3, 4], [4, 0, 2, 1], 5, values=[0.4, 1, 0.2, 1])
    expected = np.array([[1, 0, 0.2, 0, 0.4], [0, 1, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(targets.dense(), expected)


SPARSE_BAD = {
    "offsets that end early": ({"offsets": [0, 1], "indices": [0, 1]}, "must go from 0 to"),
    "offsets that fall": ({"offsets": [0, 2, 1, 2], "indices": [0, 1]}, "row 1 has a negative"),
    "text": ({"offsets": [0, 1], "indices": ["a"]}, "must be whole numbers"),
    "values of no meaning": ({"offsets": [0, 1], "indices": [0], "values": [7]}, "must be 0, 1"),
    "too few values": (
        {"offsets": [0, 2], "indices": [0, 1], "values": [1]},
        "one value per entry",
    ),
    "labels of an unknown row": (
        {"offsets": [0, 1], "indices": [0], "known": [False]},
        "row 0 has some",
    ),
}


@pytest.mark.parametrize("case", SPARSE_BAD)
def test_bad_sparse_targets_are_refused(case):
    fields, message = SPARSE_BAD[case]
    with pytest.raises(InputError, match=message):
        SparseTargets(num_labels=3, **fields)
