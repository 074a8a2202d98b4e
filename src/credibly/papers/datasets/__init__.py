"""Readers of published data sets, one function each: ``credibly train coco:PATH``.

``pyproject.toml`` registers them by name in the entry-point group ``credibly.readers``, where any
package can add its own. A reader takes the path, and its options by name; the command line makes
a flag of each option (``credibly train coco:PATH --help`` lists them).
"""
