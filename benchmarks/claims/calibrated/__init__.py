"""Calibrated multi-label networks and conjunctive retrieval (SPA, LPR).

methods   what is trained
tables    recipes: a method and how its scores are read; every figure of theirs
rules     the claims, each by its rule
"""

from benchmarks.claims.calibrated.methods import RATES, SETUPS, methods
from benchmarks.claims.calibrated.rules import findings
from benchmarks.claims.calibrated.tables import retrieval, tables

__all__ = ["RATES", "SETUPS", "findings", "methods", "retrieval", "tables"]
