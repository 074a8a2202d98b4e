"""Readers of published data sets, one function each: ``credibly train coco:PATH``.

``pyproject.toml`` registers them by name in the entry-point group ``credibly.readers``, to which
any package can add readers. A reader takes the path, and options by name. The command line makes a
flag of each option (``credibly train coco:PATH --help`` lists them).
"""
