"""scikit-learn estimators whose probabilities can be acted on.

CredibleClassifier(loss="spa+lpr")      trains a model of its own on features
CalibratedMultiLabel(estimator)         calibrates any classifier of scikit-learn's kind
"""

from credibly.estimators.calibrated import CalibratedMultiLabel
from credibly.estimators.classifier import CredibleClassifier

__all__ = ["CalibratedMultiLabel", "CredibleClassifier"]
