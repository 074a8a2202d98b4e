"""The average-K loss: label sets of a given mean size from one observed label per row.

methods   what is trained, for which K
tables    accuracy, sizes, rare classes, what people voted for
rules     the claims, each by its rule
"""

from benchmarks.claims.average_k.methods import SETUPS, methods
from benchmarks.claims.average_k.rules import cheap, findings
from benchmarks.claims.average_k.tables import HEADS, at, tables

__all__ = ["HEADS", "SETUPS", "at", "cheap", "findings", "methods", "tables"]
