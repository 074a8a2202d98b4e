"""Probabilities and a query → a ranking, and how many hits to expect.

``parse`` parses ``+fork +apple -knife`` or ``(dog | cat) & !beach``; ``search`` ranks a predictions
file with DuckDB or Spark; ``Index`` keeps predictions in memory for many queries; ``probability``
computes the probability of a query from arrays. ``fit_joint`` corrects for labels that depend on
each other.
"""

from credibly.retrieve._answer import Answer, Hit
from credibly.retrieve._engines import search
from credibly.retrieve._folding import folded
from credibly.retrieve._formula import Query
from credibly.retrieve._index import Index
from credibly.retrieve._joint import Joint
from credibly.retrieve._joint_choice import JointFit, fit_joint, read_joint
from credibly.retrieve._joint_model import JointModel
from credibly.retrieve._joint_sets import JointCoverage, MostProbableSet
from credibly.retrieve._mixture import MixtureJoint
from credibly.retrieve._pairs import JointNumbers, JointTally, Together, seen_together
from credibly.retrieve._parser import parse
from credibly.retrieve._probability import probability
from credibly.retrieve._row_weights import write_row_weights
from credibly.retrieve._top_labels import search_top_labels

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
    "search_top_labels",
    "seen_together",
    "write_row_weights",
]
