"""Probabilities and a query → a ranking, and how many hits to expect.

``parse`` parses ``+fork +apple -knife`` or ``(dog | cat) & !beach``; ``search`` ranks a predictions
file with DuckDB or Spark; ``Index`` keeps predictions in memory for many queries; ``probability``
computes the probability of a query from arrays. ``fit_joint`` corrects for labels that depend on
each other.
"""

from credibly.retrieve.answer import Answer
from credibly.retrieve.files import search
from credibly.retrieve.joint.choice import fit_joint
from credibly.retrieve.joint.label_sets import JointCoverage, MostProbableSet
from credibly.retrieve.joint.model import Joint
from credibly.retrieve.joint.pairs import seen_together
from credibly.retrieve.memory import Index, probability
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.parser import parse

__all__ = [
    "Answer",
    "Index",
    "Joint",
    "JointCoverage",
    "MostProbableSet",
    "Query",
    "fit_joint",
    "parse",
    "probability",
    "search",
    "seen_together",
]
