"""A queue of training runs that take hours: ``make long-runs``; the plan is ``long_runs.toml``.

plan      the plan as data; which unit is next, given the records
records   finished units, one file per experiment; a record is whole or not there
unit      one unit in a process of its own: train, read the scores, write the record
measure   scores of held-out and test rows → every metric of every map
results/  the records

A record has the unit (``id``, ``setup``, ``method``, ``data``, ``settings``, ``seed``, ``trial``,
``trainings`` with the chosen rate and loss), ``commit``, ``cpu_seconds``, ``date``, and an entry of
``results`` per training: what the last layer started from, and ``reads``, one per epoch read. A
read has ``held_out`` (what trials are judged by) and, unless it is a trial, the test rows: ``maps``
(``raw``, ``link`` where it differs from raw, each followed by each calibrator: ``link + affine``;
``phi`` and ``sccp`` alone) and ``plateau``, the share of entries whose log-odds are infinite.
"""
