"""The web app and its REST API: search, see why, examine every label. Needs ``credibly[serve]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from credibly.checks import require

if TYPE_CHECKING:
    from credibly.app.server.application import create_app

__all__ = ["create_app"]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'credibly.app.server' has no attribute {name!r}")
    require("serve", "fastapi", "uvicorn", "jinja2", "PIL")
    from credibly.app.server.application import create_app

    return create_app
