#!/usr/bin/env bash
# Runs the tests in two goes; arguments go to pytest. What bears a neighbour runs in two processes
# side by side; what harms processes and watches the clock, or takes a whole machine, runs alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# What takes longest comes first, so that neither process waits long for the other's last file.
beside=(tests/integration/export tests/integration/servers/test_gateway_faults.py
    tests/integration/servers/test_repository.py tests/integration/servers/test_versions.py
    tests/integration/checkpoint tests/packaging tests/unit/servers tests/unit/exporters
    tests/integration/servers/test_minilm.py tests/integration/servers/test_raw_socket.py
    tests/integration/servers/test_tritonclient.py tests/integration/servers/test_oip_http.py
    tests/integration/servers/test_openai_embeddings.py tests/e2e/test_command_line.py
    tests/e2e/test_contributing.py tests/unit/loadtests tests/unit/modelops)
alone=(tests/integration/servers/test_processes*.py
    tests/integration/servers/test_what_a_front_holds.py
    tests/integration/servers/test_text_bench.py tests/integration/servers/test_vllm*.py
    tests/integration/loadtests tests/integration/environments tests/e2e/test_readme.py)
nothing=5 # pytest's exit code where it found no test, which -k in one of the two goes may mean
status=$nothing
work=$(mktemp -d)
# What one go has exported the other need not export again.
export MODELOPS_TEST_ARTIFACTS=$work
fetching=
trap '[ -z "$fetching" ] || kill "$fetching" 2>/dev/null; rm -rf "$work"' EXIT

run() {
    local code=0
    .venv/bin/python -m pytest -m "not gpu and not cuda_wheel" "$@" || code=$?
    if [ "$code" -eq 2 ]; then exit 2; fi # interrupted
    case $status in 0 | "$nothing") if [ "$code" -ne "$nothing" ]; then status=$code; fi ;; esac
}

# The network is waited for beside the first go; the tests that need vLLM tell what went wrong.
if [ $# -eq 0 ]; then
    .venv/bin/python -m modelops engine install vllm --engines-dir "$PWD/.venv/engines" \
        >"$work/install.log" 2>&1 &
    fetching=$!
fi
run -n 2 --dist loadfile --no-loadscope-reorder "${beside[@]}" "$@"
if [ -n "$fetching" ]; then wait "$fetching" || true; fi
fetching=
run "${alone[@]}" "$@"
exit "$status"
