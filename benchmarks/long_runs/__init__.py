"""A queue of training runs that take hours: ``make long-runs``; the plan is ``long_runs.toml``.

plan      the plan as data; which unit is next, given the records
records   finished units, one file per experiment; a record is whole or not there
unit      one unit in a process of its own: train, read the scores, write the record
measure   scores of held-out and test rows → every metric of every map
"""
