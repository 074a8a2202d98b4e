"""What people look at: the web app, the report, and the numbers and words of both.

cr.app.report.write(["predictions.parquet"], "report.html")
cr.app.server.create_app(["predictions.parquet"])            # credibly serve
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from credibly.app import report, server

__all__ = ["report", "server"]


def __getattr__(name: str):
    if name in __all__:
        return import_module(f"credibly.app.{name}")
    raise AttributeError(f"module 'credibly.app' has no attribute {name!r}")
