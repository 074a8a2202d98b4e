"""What four papers claim, measured: ``python -m benchmarks.claims`` (or ``make claims``).

sets      the data sets, by name, some of them made from others
cells     one training run: what decides it, and its key
measure   a finished run → figures of held-out and test rows
runner    runs in processes, kept in ``results/*.jsonl``; what is there is not run again
plan      methods, their trials, the choice among them, their seeds
tables    means with intervals, paired differences, ranks; a table as Markdown and CSV
findings  verdicts
calibrated, quasibinary, two_way, average_k, defaults   the studies: methods, tables, rules
transfer  rows for ``two_way``: features of a network trained on other labels
lengths   the long runs on frozen features (``benchmarks.long_runs``), as rules and tables see them
normalizer, diagram, cost, several_labels   measured beside the runs, each with a file of its own
page      docs/papers/ and benchmarks/results/ from the files in ``results/``
figures   what the pages show
"""
