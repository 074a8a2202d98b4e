"""What is probably mislabelled, and what to look at next.

    issues = cr.inspect.label_issues(predictions)     # held-out, calibrated, with truth
    issues.write("queue.csv")                         # the entries to look at, surest first
    issues = cr.inspect.label_issues_of_files("parts/", engine="spark")       # any number of rows
    corrected = cr.inspect.apply_reviews(predictions, cr.inspect.read_reviews("queue.csv"))

``cr.integrations.label_studio`` and ``cr.integrations.fiftyone`` hand the queue to annotators and
read their answers.
"""

from credibly.inspect._files import label_issues_of_files
from credibly.inspect._issues import (
    KINDS,
    PROBABLY_WRONG,
    LabelErrors,
    LabelIssue,
    LabelIssues,
    label_issues,
    probably_wrong,
)
from credibly.inspect._log import VALUES, LoggedReview, ReviewLog
from credibly.inspect._noise import NoiseModel, fit_noise
from credibly.inspect._reviews import Review, apply_reviews, read_queue, read_reviews

__all__ = [
    "KINDS",
    "PROBABLY_WRONG",
    "VALUES",
    "LabelErrors",
    "LabelIssue",
    "LabelIssues",
    "LoggedReview",
    "NoiseModel",
    "Review",
    "ReviewLog",
    "apply_reviews",
    "fit_noise",
    "label_issues",
    "label_issues_of_files",
    "probably_wrong",
    "read_queue",
    "read_reviews",
]
