"""stallguard as another version of itself, beside another version of Dask: VERSION DASK WORDS..."""

from __future__ import annotations

import sys

import distributed

import stallguard

if __name__ == "__main__":
    stallguard.__version__, distributed.__version__ = sys.argv[1:3]
    sys.argv[1:3] = []
    from stallguard.cli import main

    sys.exit(main())
