"""``python -m modelops``."""

from modelops.cli.main import main

main()
