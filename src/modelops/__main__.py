"""``python -m modelops``."""

import sys
from pathlib import Path

# python -m puts the working folder first: a file there could stand in for a library.
if sys.path and Path(sys.path[0]).resolve() == Path.cwd().resolve():
    del sys.path[0]

from modelops.cli.main import main

main()
