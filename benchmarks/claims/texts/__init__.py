"""The claims on texts: TF-IDF to the optimum, and a small encoder trained end to end.

methods   what is trained, in which order
tables    recipes by data set, and sets of labels by size
"""

from benchmarks.claims.texts.methods import ONE_LABEL, SETUPS, methods
from benchmarks.claims.texts.tables import tables

__all__ = ["ONE_LABEL", "SETUPS", "methods", "tables"]
