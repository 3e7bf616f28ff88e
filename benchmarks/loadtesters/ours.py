"""One load test with the options of a JSON object: ``python -m loadtesters.ours OPTIONS``.

The command line, plus what only tests of the load tester need: ids by which a server's own stamps
are found.
"""

from __future__ import annotations

import json
import sys

from modelops_loadtests.runner import run

if __name__ == "__main__":
    run({"trace_ids": True, "server_metrics": False, "calibrate": False, **json.loads(sys.argv[1])})
