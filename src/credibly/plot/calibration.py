"""Plots of calibration: reliability diagrams, pooled and per label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from credibly import metrics
from credibly.arrays import to_numpy
from credibly.metrics.label_sets import unknown_below_top
from credibly.metrics.summaries import MIN_COUNT
from credibly.plot import style
from credibly.plot.sources import Source, drawn_from
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from credibly.metrics.calibration import ReliabilityDiagram


def reliability(
    probabilities: Source,
    targets: TargetsLike | None = None,
    *,
    bins: int = 15,
    level: float = 0.95,
    top: int | None = None,
    name: str | None = None,
    ax: Axes | None = None,
    coding: Coding | None = None,
) -> Axes:
    """Draw a reliability diagram: the share of present labels against the predicted probability.

    A calibrated model lies on the diagonal. Bars are confidence intervals of the frequency
    (Wilson). The strip below counts the entries by probability. Call again with the same ``ax`` to
    overlay another method. With ``top``, only the ``top`` most probable labels of each row count,
    as in ``metrics.top_k_calibration_error``.

    Args:
        probabilities: an array, together with ``targets``; or predictions, a predictions file
            or the folder of a run, which contain targets. The other plots of predictions accept
            the same.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((500, 4))
        >>> ax = reliability(p, rng.random((500, 4)) < p, name="honest")
        >>> ax.get_xlabel(), len(ax.child_axes)
        ('', 1)
    """
    given, truth, _ = drawn_from(probabilities, targets, partial(Targets.beside, coding=coding))
    if top is not None:
        truth = Targets(unknown_below_top(given, truth.matrix, top))
    found = metrics.reliability(given, truth, bins, level=level)
    return reliability_diagram(found, name=name, ax=ax)


def reliability_diagram(
    found: ReliabilityDiagram, *, name: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the result of ``metrics.reliability`` or ``metrics.streaming.Reliability``.

    Example:
        >>> from credibly.metrics import reliability
        >>> ax = reliability_diagram(reliability([[0.2, 0.9]], [[0, 1]]))
        >>> ax.get_ylabel()
        'share that was present'
    """
    ax = style.axes(ax, 4.6, 5.0)
    place = style.series(ax)
    if not ax.child_axes:
        ax.plot([0, 1], [0, 1], color=style.MUTED, lw=1, ls="--", zorder=1)
        beneath = style.axes(ax.inset_axes((0.0, -0.34, 1.0, 0.24)))
        beneath.set(xlim=(0, 1), xlabel="probability given", ylabel="count", yscale="log")
        ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="share that was present", xticklabels=[])
        ax.set_box_aspect(1)
    _curve(ax, found, place, name or "model")
    _histogram(ax.child_axes[0], found, place)
    if name:
        style.legend(ax, loc="upper left")
    return ax


def _curve(
    ax: Axes, found: ReliabilityDiagram, place: int, name: str, *, thin: bool = False
) -> None:
    seen = found.counts > 0
    x, y = found.confidence[seen], found.frequency[seen]
    spread = np.abs(np.stack([y - found.lower[seen], found.upper[seen] - y]))
    look = style.line(place)
    if thin:
        look |= {"linewidth": 1.3, "markersize": 3}
    ax.errorbar(x, y, spread, elinewidth=1, label=name, **look)


def _histogram(ax: Any, found: ReliabilityDiagram, place: int) -> None:
    look = style.line(place)
    ax.stairs(found.counts, found.edges, color=look["color"], ls=look["linestyle"], lw=1.2)
    ax.set_ylim(0.8, None)


def labels(
    probabilities: Source,
    targets: TargetsLike | None = None,
    names: Sequence[str] | None = None,
    *,
    count: int = 12,
    bins: int = 15,
    min_count: int = MIN_COUNT,
    columns: int = 4,
    coding: Coding | None = None,
) -> Array:
    """Draw small reliability diagrams, one per label, the worst (by calibration error) first.

    Returns:
        The Axes, in reading order.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((200, 3))
        >>> len(labels(p, rng.random((200, 3)) < p, ["a", "b", "c"]))
        3
    """
    from matplotlib.figure import Figure

    p, y, own = drawn_from(probabilities, targets, partial(Targets.beside, coding=coding))
    names = names or own or [str(label) for label in range(p.shape[1])]
    errors = to_numpy(metrics.calibration_error(p, y, "ace", bins, min_count, average=None))
    order = np.argsort(-np.nan_to_num(errors, nan=-1.0), kind="stable")[:count]
    rows = -(-len(order) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows), layout="constrained")
    drawn = []
    for place, label in enumerate(int(t) for t in order):
        ax = style.axes(figure.add_subplot(rows, columns, place + 1))
        ax.plot([0, 1], [0, 1], color=style.MUTED, lw=0.8, ls="--")
        found = metrics.reliability(p[:, [label]], y[:, [label]], bins)
        _curve(ax, found, 0, "", thin=True)
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        title = ax.set_title(_short(names[label], errors[label]), fontsize=9, color=style.INK)
        title.set_parse_math(False)
        ax.set_box_aspect(1)
        drawn.append(ax)
    return np.array(drawn, dtype=object)


def _short(name: str, error: float) -> str:
    cut = name if len(name) <= 16 else name[:15] + "…"
    return cut if np.isnan(error) else f"{cut}  {error:.3f}"
