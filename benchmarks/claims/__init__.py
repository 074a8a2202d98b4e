"""What four papers claim, measured: ``python -m benchmarks.claims`` (or ``make claims``).

sets      the data sets, by name, some of them made from others
cells     one training run: what decides it, and its key
measure   a finished run → figures of held-out and test rows
runner    runs in processes, kept in ``results/*.jsonl``; what is there is not run again
plan      methods, their trials, the choice among them, their seeds
calibrated, quasibinary, two_way, average_k, defaults   the studies: methods and tables
page      docs/results.md from the files in ``results/``
"""
