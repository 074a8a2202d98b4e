"""The type of training protocols, and statements that several papers share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from credibly.types import JsonObject

NO_LINK = {name: f"{name}+published" for name in ("twl", "topk", "warp", "rml")}
"""Losses without a link are read as their authors do: none of the papers fits a calibrator."""


@dataclass(frozen=True)
class Statement:
    """A statement of a paper, with the resulting settings and data options.

    Attributes:
        words: a quotation; the source, if it is a public script; ``ours: …`` for choices that the
            paper does not state.
        settings: options of a recipe, as for ``cr.train.recipe``.
        data: options of ``cr.data.load``.
    """

    words: str
    settings: JsonObject
    data: JsonObject

    def values(self) -> list[str]:
        """Return its settings, formatted as in a TOML file.

        Example:
            >>> says("half and three quarters", milestones=(0.5, 0.75), nesterov=True).values()
            ['milestones = [0.5, 0.75]', 'nesterov = true']
        """
        values = {**self.settings, **self.data}
        return [f"{name} = {_shown(value)}" for name, value in values.items()]


def _shown(value: Any) -> str:
    """Return a value as in a TOML file; a long list is shortened to its ends."""
    if value is None:
        return "default"
    if isinstance(value, tuple) and len(value) > 8:
        first, second, last = (f"{each:.3g}" for each in (*value[:2], value[-1]))
        return f"[{first}, {second}, …, {last}]"
    return json.dumps(value)


def says(words: str, data: JsonObject | None = None, **settings: Any) -> Statement:
    """Return a statement, with settings by name."""
    return Statement(words, settings, data or {})


@dataclass(frozen=True)
class Preset:
    """A training protocol: the statements of its paper.

    Later statements override earlier ones. ``-ours`` variants add the defaults of this package:
    biases that start at the label rates, and a calibrator.

    Attributes:
        statements: quotations of the paper with their settings.
        losses: the meaning of a bare loss name in the tables of the paper.
        of_data: options for a data set, by the name of its reader.

    Example:
        >>> Preset((says("batch size of 256", batch_size=256),)).settings
        {'batch_size': 256}
    """

    statements: tuple[Statement, ...] = ()
    losses: Mapping[str, str] = field(default_factory=dict)
    of_data: Mapping[str, JsonObject] = field(default_factory=dict)

    @cached_property
    def settings(self) -> JsonObject:
        """Return the settings of all statements."""
        return {name: value for each in self.statements for name, value in each.settings.items()}

    def data(self, source: str) -> JsonObject:
        """Return the options of ``cr.data.load`` for a source such as ``coco:PATH``."""
        common = {name: value for each in self.statements for name, value in each.data.items()}
        return {**common, **self.of_data.get(source.partition(":")[0], {})}

    def loss(self, name: str) -> str:
        """Return the loss that a name means in this protocol."""
        return {**NO_LINK, **self.losses}.get(name, name)

    def but(self, *statements: Statement, **others: Any) -> Preset:
        """Return this protocol with additional statements."""
        kept = {"losses": self.losses, "of_data": self.of_data}
        return Preset((*self.statements, *statements), **{**kept, **others})


PLAIN = says(
    "not mentioned: biases at the label rates, a linear probe first, fixed norms, a calibrator",
    prior_bias=False,
    probe_first=False,
    fixed_norms=False,
    calibrate="none",
)
ALL_ROWS = says(
    "not mentioned: held-out rows. All training rows are used for training, the last epoch counts",
    data={"calibration": 0.0},
    select="last",
)
OURS = says(
    "ours: biases at the label rates, a calibrator on held-out rows, our defaults for fine-tuning",
    data={"calibration": 0.2},
    prior_bias=True,
    calibrate="affine",
    select="nll",
    probe_first=None,
    fixed_norms=None,
)
