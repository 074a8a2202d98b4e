"""What is probably mislabelled, and what to look at next.

    issues = cr.review.label_issues(predictions)     # held-out, calibrated, with truth
    issues.write("queue.csv")                         # the entries to look at, surest first
    issues = cr.review.label_issues_of_files("parts/", engine="spark")       # any number of rows
    corrected = cr.review.apply_reviews(predictions, cr.review.read_reviews("queue.csv"))

``cr.review.label_studio`` and ``cr.review.fiftyone`` hand the queue to annotators and
read their answers.
"""

from credibly.review import fiftyone, label_studio
from credibly.review.file_issues import label_issues_of_files
from credibly.review.issues import (
    KINDS,
    PROBABLY_WRONG,
    LabelErrors,
    LabelIssue,
    LabelIssues,
    label_issues,
    probably_wrong,
)
from credibly.review.log import VALUES, LoggedReview, ReviewLog
from credibly.review.noise_model import NoiseModel, fit_noise
from credibly.review.reviews import Review, apply_reviews, read_queue, read_reviews

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
    "fiftyone",
    "fit_noise",
    "label_issues",
    "label_issues_of_files",
    "label_studio",
    "probably_wrong",
    "read_queue",
    "read_reviews",
]
