"""Targets mean the same wherever they enter, and what can be read two ways is never guessed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from credibly import InputError
from credibly.targets import (
    SparseTargets,
    decode,
    is_ambiguous,
    one_hot,
    tensor_matrix,
    tensor_one_hot,
)

AMBIGUOUS = np.array([[1, -1, -1], [-1, 1, 1]])
KINDS = [np.int8, np.int64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_targets_become_int8(kind):
    decoded = decode(np.array([[1, 0, -1], [-100, 1, 0]], dtype=kind))
    assert decoded.dtype == np.int8
    assert decoded.tolist() == [[1, 0, -1], [-1, 1, 0]]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_soft_targets_keep_their_dtype_and_unknowns_become_minus_one(kind):
    decoded = decode(np.array([[0.25, np.nan, -1, -100, 1]], dtype=kind))
    assert decoded.dtype == kind
    assert decoded.tolist() == [[0.25, -1, -1, -1, 1]]


def test_booleans_and_tensors_are_targets():
    assert decode(np.array([[True, False]])).tolist() == [[1, 0]]
    assert decode(torch.tensor([[1.0, 0.5]])).tolist() == [[1.0, 0.5]]


@pytest.mark.parametrize("kind", KINDS)
def test_only_minus_one_and_plus_one_is_refused_with_both_readings(kind):
    with pytest.raises(InputError, match=r'`coding="signed"` if .* `coding="unknown"` if'):
        decode(AMBIGUOUS.astype(kind))


def test_a_missing_value_beside_plus_and_minus_one_does_not_settle_the_coding():
    with pytest.raises(InputError, match="read two ways"):
        decode(np.array([[1.0, -1.0, np.nan]]))


@pytest.mark.parametrize("matrix", [[[1, 1]], [[-1, -1]], [[1, -1, 0]], [[1, -1, 0.5]], [[]]])
def test_everything_else_needs_no_coding(matrix):
    decode(np.array(matrix, dtype=float))


def test_the_two_codings_read_as_they_say():
    assert decode(AMBIGUOUS, coding="signed").tolist() == [[1, 0, 0], [0, 1, 1]]
    assert decode(AMBIGUOUS, coding="unknown").tolist() == AMBIGUOUS.tolist()
    partly = np.array([[1, -1, 0, np.nan, -100]])
    assert decode(partly, coding="signed").tolist() == [[1, 0, -1, -1, -1]]


@pytest.mark.parametrize(
    ("matrix", "words"),
    [([[1, 0.5]], "must be 1 .present., −1"), ([[1, 0]], "must hold −1 for absent")],
)
def test_a_coding_that_contradicts_the_values_is_refused(matrix, words):
    with pytest.raises(InputError, match=words):
        decode(np.array(matrix), coding="signed")


def test_an_unknown_coding_is_refused():
    with pytest.raises(InputError, match="`coding` must be one of"):
        decode(AMBIGUOUS, coding="plusminus")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [2, -2, 1.5, -0.5, -99, np.inf])
def test_a_value_without_meaning_is_named_with_its_place(value):
    with pytest.raises(InputError, match=r"got .* at \(0, 1\)"):
        decode(np.array([[0, value]]))


def test_soft_targets_are_refused_where_only_hard_ones_have_meaning():
    with pytest.raises(InputError, match=r"0, 1 or −1 .* got 0.5 at \(0, 0\)"):
        decode(np.array([[0.5, 1]]), soft=False)


def test_class_indices_become_one_row_each():
    assert decode(np.array([2, -1, 0, -100]), num_labels=3).tolist() == [
        [0, 0, 1],
        [-1, -1, -1],
        [1, 0, 0],
        [-1, -1, -1],
    ]


@pytest.mark.parametrize("index", [3, -2])
def test_a_class_index_out_of_range_is_named_with_its_row(index):
    with pytest.raises(InputError, match=rf"got {index} in row 1"):
        one_hot(np.array([0, index]), 3)


def test_the_wrong_number_of_columns_is_named():
    with pytest.raises(InputError, match="must have one column per label, 3; got 2"):
        decode(np.array([[0, 1]]), num_labels=3)


def test_text_is_refused():
    with pytest.raises(InputError, match="must be numbers or booleans"):
        decode(np.array([["cat"]]))


def test_ambiguity_looks_beyond_the_first_block():
    large = np.ones((1 << 20, 2), np.int8)
    large[0, 0] = -1
    assert is_ambiguous(large)
    large[-1, -1] = 0
    assert not is_ambiguous(large)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_tensors_and_arrays_of_class_indices_give_the_same_matrix(kind):
    indices = torch.tensor([2, -1, 0, -100], dtype=kind)
    matrix = tensor_one_hot(indices, 3, torch.float64)
    assert matrix.dtype == torch.float64
    np.testing.assert_array_equal(matrix.numpy(), one_hot(indices.numpy(), 3))


def test_tensor_targets_take_dtype_and_shape_of_the_scores():
    scores = torch.zeros(2, 3)
    assert tensor_matrix(scores, torch.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert tensor_matrix(scores, torch.ones(2, 3, dtype=torch.bool)).dtype == torch.float32
    with pytest.raises(InputError, match="must have the shape of the scores"):
        tensor_matrix(scores, torch.ones(2, 2))
    with pytest.raises(InputError, match=r"class indices must lie in \[0, 2\]"):
        tensor_matrix(scores, torch.tensor([0, 3]))


@pytest.mark.parametrize("bad", [2.5, 0, -1, "2", None])
def test_the_number_of_labels_is_a_whole_number(bad):
    with pytest.raises(InputError, match="`num_labels` must be a whole number of at least 1; got"):
        SparseTargets(np.array([0, 1]), np.array([0]), num_labels=bad)
    assert SparseTargets(np.array([0, 1]), np.array([0]), np.int64(2)).num_labels == 2
