"""``python -m modelops_servers.keeper CONTROL_FD``: started by the supervisor, never by hand."""

import sys

from modelops_servers.keeper.process import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
