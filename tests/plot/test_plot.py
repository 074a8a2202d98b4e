"""What is drawn is what was computed."""

from __future__ import annotations

import numpy as np
import pytest

import credibly as cr
from credibly import metrics, plot
from credibly.decide import AverageSize
from credibly.losses import SPA, Asymmetric, TwoWay

RNG = np.random.default_rng(0)
P = RNG.random((300, 4)).astype(np.float32)
Y = (RNG.random((300, 4)) < P).astype(np.int8)
Y[0], Y[1] = 0, -1


def test_reliability_draws_the_bins_of_the_metric():
    ax = plot.reliability(P, Y, name="ours")
    found = metrics.reliability(P, Y)
    seen = found.counts > 0
    drawn = ax.containers[0].lines[0]
    np.testing.assert_allclose(drawn.get_xdata(), found.confidence[seen])
    np.testing.assert_allclose(drawn.get_ydata(), found.frequency[seen])
    counts = ax.child_axes[0].patches[0].get_data().values
    np.testing.assert_array_equal(counts, found.counts)


def test_methods_overlay_on_the_same_axes():
    ax = plot.reliability(P, Y, name="ours")
    again = plot.reliability(P**2, Y, name="theirs", ax=ax)
    assert again is ax
    assert len(ax.child_axes) == 1
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours", "theirs"]


def test_labels_come_worst_first():
    spoilt = P.copy()
    spoilt[:, 2] = 1 - spoilt[:, 2]
    drawn = plot.labels(spoilt, Y, ["a", "b", "$c$", "d"], bins=10, min_count=10)
    assert drawn[0].get_title().startswith("$c$")
    assert len(drawn) == 4


def test_rows_without_labels_have_their_own_bar():
    sets = np.zeros((10, 4), dtype=bool)
    sets[:3, 0] = True
    ax = plot.set_sizes(sets)
    assert [bar.get_height() for bar in ax.patches] == [7, 3]
    assert ax.get_xticklabels()[0].get_text() == "no label"


def test_set_sizes_split_by_how_often_labels_were_seen():
    ax = plot.set_sizes(P > 0.5, targets=Y, train_counts=[5, 50, 500, 500])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["few", "medium", "many", "no true label"]
    assert sum(bar.get_height() for bar in ax.patches) == len(P)


def test_coverage_never_falls_as_the_budget_grows():
    heights = plot.coverage(P, Y).lines[0].get_ydata()
    assert (np.diff(heights) >= 0).all()


@pytest.mark.parametrize("loss", [SPA(), Asymmetric()], ids=str)
def test_the_link_drawn_is_the_link(loss):
    line = plot.link(loss).lines[0]
    import torch

    scores = torch.tensor(line.get_xdata())[:, None]
    np.testing.assert_allclose(line.get_ydata(), loss.probabilities(scores)[:, 0], atol=1e-12)


def test_a_loss_without_a_curve_says_so():
    with pytest.raises(cr.InputError, match="on its own"):
        plot.link(TwoWay())


@pytest.mark.parametrize("decimals", [1, 6])
def test_coverage_is_that_of_average_size_with_ties(decimals):
    p = np.round(P, decimals)
    sizes = [0.3, 1.0, 1.7, P.shape[1]]
    heights = plot.coverage(p, Y, sizes=sizes).lines[-1].get_ydata()
    for size, height in zip(sizes, heights, strict=True):
        sets = AverageSize(size).fit(p).predict(p)
        assert height == pytest.approx(metrics.set_coverage(sets, Y))


def test_set_sizes_take_class_indices():
    classes = np.array([0, 2, -1, 1])
    matrix = np.array([[1, 0, 0], [0, 0, 1], [-1, -1, -1], [0, 1, 0]])
    sets, counts = np.eye(4, 3, dtype=bool), [5, 50, 500]

    def heights(targets):
        bars = plot.set_sizes(sets, targets=targets, train_counts=counts).containers
        return [[bar.get_height() for bar in group] for group in bars]

    assert heights(classes) == heights(matrix)
