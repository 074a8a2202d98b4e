"""Names of labels as people type them: whatever their case and accents."""

from __future__ import annotations

import unicodedata
from functools import lru_cache


@lru_cache(maxsize=2**16)
def folded(text: str) -> str:
    """Return text for comparison: without case and accents.

    Example:
        >>> folded("Café") == folded("CAFE")
        True
    """
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
