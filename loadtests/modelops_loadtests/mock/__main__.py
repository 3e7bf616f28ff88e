"""``python -m modelops_loadtests.mock``."""

from modelops_loadtests.mock.command import main

if __name__ == "__main__":
    main()
