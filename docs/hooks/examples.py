"""Show the doctests under ``Example:``, which the reader of docstrings knows as ``Examples:``."""

from __future__ import annotations

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the section of every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            value = obj.docstring.value
            obj.docstring.value = "\n".join(
                "Examples:" if line == "Example:" else line for line in value.split("\n")
            )
