"""The claims on texts: TF-IDF to the optimum, and a small encoder trained end to end.

methods   what is trained, in which order
tables    recipes by data set, sets of labels by size, and what was found on questions about images
"""

from benchmarks.claims.texts.methods import ONE_LABEL, SETUPS, methods
from benchmarks.claims.texts.tables import questions, tables

__all__ = ["ONE_LABEL", "SETUPS", "methods", "questions", "tables"]
