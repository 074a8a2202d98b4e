"""Search: rank rows by a query, and estimate how many match.

``parse`` parses ``+fork +apple -knife`` or ``(dog | cat) & !beach``. ``search`` ranks a predictions
file with DuckDB or Spark. ``Index`` keeps predictions in memory for many queries. ``probability``
computes the probability of a query from arrays. ``fit_joint`` fits a model of labels that depend on
each other.
"""

from credibly.retrieve.index import Index, probability
from credibly.retrieve.joint.label_sets import JointCoverage
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.joint.model_selection import fit_joint
from credibly.retrieve.query import Query, parse
from credibly.retrieve.searching import search

__all__ = [
    "Index",
    "Joint",
    "JointCoverage",
    "Query",
    "fit_joint",
    "parse",
    "probability",
    "search",
]
