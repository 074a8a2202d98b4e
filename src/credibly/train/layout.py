"""The version of a run folder's layout: older ones are read, a newer major one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from credibly.checks import InputError

LAYOUT = "1.0"


def check_layout(config: Mapping[str, Any], path: Path) -> None:
    """Whether this credibly can read the run that ``config`` belongs to.

    Example:
        >>> check_layout({"credibly": {"layout": "1.7"}}, Path("config.toml"))  # nothing to say
    """
    about = config.get("credibly")
    # The first runs carried no layout of their own: theirs is 1.0.
    layout = str(about.get("layout", "1.0")) if isinstance(about, Mapping) else "1.0"
    major = layout.partition(".")[0]
    if not (major.isascii() and major.isdigit()):
        raise InputError(f"{path}: `layout` must be a version such as {LAYOUT}; got {layout!r}.")
    if len(major) > 6 or int(major) > int(LAYOUT.partition(".")[0]):
        raise InputError(
            f"{path}: layout version {layout[:40]} is newer than {LAYOUT}, the newest this "
            "credibly reads. Upgrade credibly."
        )
