"""What is drawn is what was computed."""

from __future__ import annotations

import numpy as np
import pytest

import credibly as cr
from credibly import InputError, Predictions, metrics, plot
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


@pytest.mark.parametrize("loss", [SPA(), Asymmetric()], ids=str)
def test_the_link_drawn_is_the_link(loss):
    line = plot.link(loss).lines[0]
    import torch

    scores = torch.tensor(line.get_xdata())[:, None]
    np.testing.assert_allclose(line.get_ydata(), loss.probabilities(scores)[:, 0], atol=1e-12)


def test_a_loss_without_a_curve_says_so():
    with pytest.raises(cr.InputError, match="on its own"):
        plot.link(TwoWay())


def test_set_sizes_take_class_indices():
    classes = np.array([0, 2, -1, 1])
    matrix = np.array([[1, 0, 0], [0, 0, 1], [-1, -1, -1], [0, 1, 0]])
    sets, counts = np.eye(4, 3, dtype=bool), [5, 50, 500]

    def heights(targets):
        bars = plot.set_sizes(sets, targets=targets, train_counts=counts).containers
        return [[bar.get_height() for bar in group] for group in bars]

    assert heights(classes) == heights(matrix)


def test_set_sizes_of_two_methods_stand_side_by_side_by_name():
    sets = {"softmax": P > 0.5, "two heads": P > 0.2}
    ax = plot.set_sizes(sets)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(sets)
    first, second = ([bar.get_height() for bar in group] for group in ax.containers)
    assert first == np.bincount((P > 0.5).sum(1), minlength=len(first)).tolist()
    assert second == np.bincount((P > 0.2).sum(1), minlength=len(second)).tolist()
    left, right = (group[0] for group in ax.containers)
    assert left.get_x() + left.get_width() == pytest.approx(right.get_x())


def test_reliability_of_the_top_labels_draws_what_its_error_sums():
    ax = plot.reliability(P, Y, bins=10, top=2)
    x, y = (np.asarray(each) for each in ax.containers[0].lines[0].get_data())
    counts = ax.child_axes[0].patches[0].get_data().values
    counts = counts[counts > 0]
    error = float((counts * np.abs(x - y)).sum() / counts.sum())
    assert error == pytest.approx(metrics.top_k_calibration_error(P, Y, k=2, bins=10))


def test_retrieval_takes_the_result_of_the_metric():
    found = metrics.retrieval_map(P, Y, max_conditions=2)
    drawn = plot.retrieval(found, name="ours").lines[-1].get_xydata()
    assert drawn.tolist() == [[count, found.by_conditions[count]] for count in (1, 2)]


def test_normalizers_of_runs_are_drawn_by_epoch(tmp_path):
    rows = cr.data.load("synthetic", n=200)
    names = ("quasibinary", "softmax")
    for name in names:
        recipe = cr.train.Network(model="mlp", loss=name, epochs=2, calibrate="none")
        cr.train.fit(rows, recipe, folder=tmp_path / name)
    logs = {name: cr.train.read_log(tmp_path / name / "log.jsonl") for name in names}
    ax = plot.normalizer(logs)
    for name, line in zip(names, ax.lines, strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xdata(), [1, 2])
        assert line.get_ydata().tolist() == [epoch["log_normalizer"] for epoch in logs[name]]
    with pytest.raises(cr.InputError, match="`log_normalizer` must be in every epoch of 'bce'"):
        plot.normalizer({"bce": [{"epoch": 1}]})


@pytest.mark.parametrize("name", ["reliability", "retrieval"])
def test_every_plot_of_predictions_takes_objects_files_and_runs(tmp_path, name):
    one = cr.Predictions.from_arrays(
        probabilities=P, targets=Y, labels=list("abcd"), coding="unknown"
    )
    one.write(tmp_path / "predictions.parquet")

    def points(source):
        return [np.asarray(line.get_ydata()) for line in getattr(plot, name)(source).lines]

    wanted = points(one)
    for source in (tmp_path / "predictions.parquet", str(tmp_path)):
        for drawn, expected in zip(points(source), wanted, strict=True):
            np.testing.assert_array_equal(drawn, expected)


def test_what_a_plot_lacks_is_told():
    without = cr.Predictions.from_arrays(probabilities=P, labels=list("abcd"))
    with pytest.raises(cr.InputError, match="these hold none"):
        plot.reliability(without)
    with pytest.raises(cr.InputError, match="needs `targets`"):
        plot.reliability(P)


def test_the_normalizer_is_read_from_runs(tmp_path):
    lines = [f'{{"epoch": {k}, "log_normalizer": {1 / k}}}' for k in (1, 2, 3)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    ax = plot.normalizer({"quasibinary": tmp_path})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1, 1 / 2, 1 / 3])


@pytest.mark.parametrize("name", ["sets.csv", "sets.parquet"])
def test_set_sizes_of_a_file_of_label_sets(tmp_path, name):
    Predictions.from_arrays(probabilities=P, labels=["a", "b", "c", "d"]).write(
        tmp_path / "p.parquet"
    )
    cr.write_sets(tmp_path / "p.parquet", cr.decide.Threshold(0.5), tmp_path / name)
    drawn = [bar.get_height() for bar in plot.set_sizes(tmp_path / name).patches]
    assert drawn == [bar.get_height() for bar in plot.set_sizes(P >= 0.5).patches]
    with pytest.raises(InputError, match="file of label sets"):
        plot.set_sizes(tmp_path / "p.parquet")
