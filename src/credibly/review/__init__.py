"""Find labels that are probably wrong, and apply the decisions of reviewers.

    issues = cr.review.label_issues(predictions)     # held-out, calibrated, with truth
    issues.write("queue.csv")                         # the entries to review, most certain first
    issues = cr.review.label_issues("shards/", executor="spark")             # any number of rows
    corrected = cr.review.apply_reviews(predictions, cr.review.read_reviews("queue.csv"))

``cr.review.label_studio`` and ``cr.review.fiftyone`` write the queue for annotation tools and read
their answers.
"""

from credibly.review import fiftyone, label_studio
from credibly.review.issues import label_issues
from credibly.review.reviews import Review, ReviewLog, apply_reviews, read_queue, read_reviews

__all__ = [
    "Review",
    "ReviewLog",
    "apply_reviews",
    "fiftyone",
    "label_issues",
    "label_studio",
    "read_queue",
    "read_reviews",
]
