"""Coverage-guided fuzzing of everything that reads what somebody else wrote.

``python -m fuzz TARGET --runs N`` or ``--seconds N``. One file per target in ``fuzz/targets``: it
names the modules to watch, gives whole inputs to start from, and tries one input. The contract is
the same for all: an input is used, or refused by ``InputError`` or ``OSError``; anything else, a
hang or a growth past the memory limit stops the campaign and leaves the input as a file.
"""
