#!/usr/bin/env bash
# Runs the tests in two goes; arguments go to pytest. What only computes runs in two processes side
# by side; what starts servers and watches the clock runs alone.
set -euo pipefail
cd "$(dirname "$0")/.."

beside=(tests/unit/modelops tests/unit/exporters tests/integration/export)
alone=(tests/unit/servers tests/unit/loadtests tests/integration/servers tests/integration/loadtests
    tests/integration/environments tests/e2e tests/packaging)
nothing=5 # pytest's exit code where it found no test, which -k in one of the two goes may mean
status=$nothing
# What one go has exported the other need not export again.
MODELOPS_TEST_ARTIFACTS=$(mktemp -d)
export MODELOPS_TEST_ARTIFACTS
trap 'rm -rf "$MODELOPS_TEST_ARTIFACTS"' EXIT

run() {
    local code=0
    .venv/bin/python -m pytest -m "not gpu and not cuda_wheel" "$@" || code=$?
    if [ "$code" -eq 2 ]; then exit 2; fi # interrupted
    case $status in 0 | "$nothing") if [ "$code" -ne "$nothing" ]; then status=$code; fi ;; esac
}

run -n 2 --dist loadfile "${beside[@]}" "$@"
run "${alone[@]}" "$@"
exit "$status"
