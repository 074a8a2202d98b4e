"""The labels of the predictions that tests serve."""

LABELS = ["fork", "apple", "knife", "dining table", "<b>bold</b>", 'say "hi"', "a;DROP TABLE x--"]
