"""Plots of losses: partial losses, links, and normalizers during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from credibly.checks import InputError
from credibly.plot import style
from credibly.untrusted.documents import parse_json, read_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from credibly.losses import Loss

KEY = "log_normalizer"
"""What the log of a run calls it."""


def link(loss: Loss | str, *, reach: float = 6.0, ax: Axes | None = None) -> Axes:
    """Draw probability against score. If the loss separates over labels, add both partial losses.

    Args:
        loss: a loss whose link maps each score separately (``loss.labelwise``), or its name.
        reach: scores from ``-reach`` to ``reach`` are drawn.
        ax: where to draw; by default a new figure.

    Example:
        >>> link("spa").get_ylabel()
        'probability'
    """
    import torch

    from credibly.losses import from_name

    if isinstance(loss, str):
        loss = from_name(loss)
    if not loss.labelwise:
        raise InputError(
            f"a link can be drawn where each score maps to a probability on its own; "
            f"{type(loss).__name__} couples labels or has no link."
        )
    ax = style.axes(ax, 5.5, 4)
    scores = torch.linspace(-reach, reach, 601, dtype=torch.float64)
    columns = scores[:, None].expand(-1, 3)
    x = scores.numpy()
    ax.plot(x, loss.probabilities(columns)[:, 0].numpy(), color=style.INK, lw=2, label="link")
    ax.plot(x, torch.sigmoid(scores).numpy(), color=style.MUTED, lw=1, ls=":", label="sigmoid")
    ax.set(xlabel="score", ylabel="probability", ylim=(-0.02, 1.02), title=type(loss).__name__)
    right = ax.twinx()
    for name, target, tint in (("loss if present", 1.0, 2), ("loss if absent", 0.0, 1)):
        values = loss.values(columns, torch.full_like(columns, target))[:, 0]
        right.plot(x, values.detach().numpy(), color=style.colour(tint), lw=1.3, label=name)
    right.set_ylabel("loss", color=style.INK)
    right.set_ylim(0, None)
    right.spines["top"].set_visible(False)
    handles = [*ax.get_lines(), *right.get_lines()]
    names = [str(line.get_label()) for line in handles]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 4}
    ax.legend(handles, names, frameon=False, fontsize=9, **place)
    return ax


def normalizer(
    histories: Mapping[str, Sequence[float] | Sequence[Mapping[str, float]] | str | Path],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw log C of the quasibinary loss and the log of softmax's normalizer, by epoch.

    C should converge; the normalizer of softmax need not.

    Args:
        histories: by name, the folder of a run, its epochs (``cr.train.read_log``; both losses
            log ``log_normalizer`` if rows are held out), or the values.
        ax: where to draw; by default a new figure.

    Example:
        >>> normalizer({"quasibinary": [1.1, 0.7, 0.5, 0.4]}).get_ylabel()
        'log of the normalizer'
    """
    ax = style.axes(ax, 5.5, 3.2)
    for name, given in histories.items():
        history = _logged(given) if isinstance(given, (str, Path)) else given
        values = [each.get(KEY) if isinstance(each, Mapping) else each for each in history]
        if not values or None in values:
            raise InputError(
                f"`{KEY}` must be in every epoch of {name!r}; it is not. Train with softmax or "
                "quasibinary and with held-out rows."
            )
        look = style.line(style.series(ax))
        ax.plot(range(1, len(values) + 1), values, label=name, **look)  # pyright: ignore[reportArgumentType]
    ax.set(xlabel="epoch", ylabel="log of the normalizer")
    style.legend(ax)
    return ax


def _logged(run: str | Path) -> list[Mapping[str, float]]:
    path = Path(run) / "log.jsonl"
    return [parse_json(line, f"{path} must be JSON lines") for line in read_lines(path)]
