"""Probabilities and a query → a ranking, and how many hits to expect.

``parse`` parses ``+fork +apple -knife`` or ``(dog | cat) & !beach``; ``search`` ranks a predictions
file with DuckDB or Spark; ``Index`` keeps predictions in memory for many queries; ``probability``
computes the probability of a query from arrays. ``fit_joint`` corrects for labels that depend on
each other.
"""

from credibly.retrieve.answer import Answer, Hit
from credibly.retrieve.files import search
from credibly.retrieve.joint.base import JointModel
from credibly.retrieve.joint.cardinality import Joint
from credibly.retrieve.joint.choice import JointFit, fit_joint, read_joint
from credibly.retrieve.joint.label_sets import JointCoverage, MostProbableSet
from credibly.retrieve.joint.mixture import MixtureJoint
from credibly.retrieve.joint.pairs import JointNumbers, JointTally, Together, seen_together
from credibly.retrieve.joint.row_weights import write_row_weights
from credibly.retrieve.memory import Index
from credibly.retrieve.query.folding import folded
from credibly.retrieve.query.formula import Query
from credibly.retrieve.query.parser import parse
from credibly.retrieve.query.probabilities import probability

__all__ = [
    "Answer",
    "Hit",
    "Index",
    "Joint",
    "JointCoverage",
    "JointFit",
    "JointModel",
    "JointNumbers",
    "JointTally",
    "MixtureJoint",
    "MostProbableSet",
    "Query",
    "Together",
    "fit_joint",
    "folded",
    "parse",
    "probability",
    "read_joint",
    "search",
    "seen_together",
    "write_row_weights",
]
