"""``python -m credibly`` is the same program as ``credibly``."""

import sys

from credibly.cli import main

if __name__ == "__main__":
    sys.exit(main())
