"""Plots of predictions: reliability, and search with several conditions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from credibly import metrics
from credibly.checks import InputError
from credibly.metrics.accumulators import probability_pair
from credibly.metrics.label_sets import unknown_below_top
from credibly.metrics.retrieval import RetrievalMap, retrieval_map
from credibly.plot import style
from credibly.predictions import Predictions
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Source = ArrayLike | Predictions | str | os.PathLike[str]


def drawn_from(
    source: Source,
    targets: TargetsLike | None = None,
    decode: Callable[[Any, TargetsLike, str], Targets] = Targets.beside,
) -> tuple[Array, Targets]:
    """Return the rows to draw. Arrays need ``targets``; predictions contain them.

    ``decode`` decodes the targets that are given with an array.

    Example:
        >>> one = Predictions.from_arrays(probabilities=[[0.9]], targets=[[1]], labels=["cat"])
        >>> drawn_from(one)[1].matrix
        array([[1]], dtype=int8)
    """
    if isinstance(source, (str, os.PathLike)):
        inside = Path(source) / "predictions.parquet"
        source = Predictions.read(inside if inside.is_file() else source)
    if isinstance(source, Predictions):
        if targets is not None or source.targets is None:
            raise InputError(
                "predictions must hold the truth, and `targets` must not be given with them; "
                f"{'both were given' if targets is not None else 'these hold none'}."
            )
        return source.probabilities, Targets(source.targets)
    if targets is None:
        raise InputError(
            "an array of probabilities needs `targets`. Pass them, or pass predictions, a "
            "predictions file or the folder of a run."
        )
    targets = decode(source, targets, "probabilities")
    p, y = probability_pair(source, targets)
    return p, Targets(y)


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
            or the folder of a run, which contain targets.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random((500, 4))
        >>> ax = reliability(p, rng.random((500, 4)) < p, name="honest")
        >>> ax.get_xlabel(), len(ax.child_axes)
        ('', 1)
    """
    given, truth = drawn_from(probabilities, targets, partial(Targets.beside, coding=coding))
    if top is not None:
        truth = Targets(unknown_below_top(given, truth.matrix, top))
    found = metrics.reliability(given, truth, bins, level=level)
    ax = style.axes(ax, 4.6, 5.0)
    look = style.line(style.series(ax))
    if not ax.child_axes:
        ax.plot([0, 1], [0, 1], color=style.MUTED, lw=1, ls="--", zorder=1)
        beneath = style.axes(ax.inset_axes((0.0, -0.34, 1.0, 0.24)))
        beneath.set(xlim=(0, 1), xlabel="probability given", ylabel="count", yscale="log")
        ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="share that was present", xticklabels=[])
        ax.set_box_aspect(1)
    seen = found.counts > 0
    x, y = found.confidence[seen], found.frequency[seen]
    spread = [y - found.lower[seen], found.upper[seen] - y]
    ax.errorbar(x, y, spread, elinewidth=1, label=name or "model", **look)
    below: Any = ax.child_axes[0]
    below.stairs(found.counts, found.edges, color=look["color"], ls=look["linestyle"], lw=1.2)
    below.set_ylim(0.8, None)
    if name:
        style.legend(ax, loc="upper left")
    return ax


def retrieval(
    result: RetrievalMap | Mapping[int, float] | Predictions | str | os.PathLike[str],
    *,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw mean average precision against the number of search conditions.

    Args:
        result: the result of ``cr.metrics.retrieval_map``, or mAP by number of conditions; or
            predictions, a file or the folder of a run, from which it is computed.
        name: of the method, for the legend.
        ax: where to draw. Pass the same Axes again to overlay methods.

    Example:
        >>> retrieval({1: 0.8, 2: 0.7, 3: 0.66}, name="spa").get_xlabel()
        'conditions in the query'
    """
    if isinstance(result, (Predictions, str, os.PathLike)):
        result = retrieval_map(*drawn_from(result))
    by_conditions = result.by_conditions if isinstance(result, RetrievalMap) else result
    ax = style.axes(ax, 5.0, 3.8)
    counts = sorted(by_conditions)
    heights = [by_conditions[count] for count in counts]
    ax.plot(counts, heights, label=name, **style.line(style.series(ax)))
    ax.set(xlabel="conditions in the query", ylabel="mAP", xticks=counts)
    style.legend(ax)
    return ax
