"""The web app and its REST API: search, see why, examine every label. Needs ``credibly[serve]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from credibly.app.server.application import create_app
    from credibly.app.server.connections import server

__all__ = ["create_app", "server"]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'credibly.app.server' has no attribute {name!r}")
    try:
        import fastapi  # noqa: F401
    except ImportError as error:
        from credibly.checks import InputError

        raise InputError(
            "the web app needs fastapi and uvicorn. Install with `pip install 'credibly[serve]'`."
        ) from error
    from credibly.app.server.application import create_app
    from credibly.app.server.connections import server

    return {"create_app": create_app, "server": server}[name]
