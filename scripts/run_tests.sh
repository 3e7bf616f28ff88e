#!/usr/bin/env bash
# Runs the tests in three goes; arguments go to pytest. What bears a neighbour runs in two processes
# side by side; then the engine's own, whose process has one core to itself, beside what only
# computes; what harms processes and watches the clock, or takes a whole machine, runs alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# What takes longest comes first, so that neither process waits long for the other's last file.
beside=(tests/integration/export tests/integration/servers/test_gateway_faults.py
    tests/integration/servers/test_repository.py tests/integration/servers/test_versions.py
    tests/packaging tests/integration/servers/test_minilm.py
    tests/integration/servers/test_raw_socket.py
    tests/integration/servers/test_openai_embeddings.py)
engine=(tests/integration/environments tests/integration/servers/test_vllm*.py
    tests/integration/servers/test_text_bench.py)
computing=(tests/unit tests/integration/checkpoint tests/integration/servers/test_tritonclient.py
    tests/integration/servers/test_oip_http.py tests/e2e/test_command_line.py
    --ignore-glob "*_stalls.py")
alone=(tests/unit/servers/test_*_stalls.py tests/integration/servers/test_processes*.py
    tests/integration/servers/test_what_a_front_holds.py tests/integration/loadtests
    tests/e2e/test_contributing.py tests/e2e/test_readme.py)
nothing=5 # pytest's exit code where it found no test, which -k in one of the goes may mean
status=$nothing
work=$(mktemp -d)
# What one go has exported the other need not export again.
export MODELOPS_TEST_ARTIFACTS=$work
behind=
trap '[ -z "$behind" ] || kill "$behind" 2>/dev/null; rm -rf "$work"' EXIT

tests() {
    .venv/bin/python -m pytest -m "not gpu and not cuda_wheel and not trainers" "$@"
}

count() {
    if [ "$1" -eq 2 ]; then exit 2; fi # interrupted
    case $status in 0 | "$nothing") if [ "$1" -ne "$nothing" ]; then status=$1; fi ;; esac
}

run() {
    local code=0
    tests "$@" || code=$?
    count "$code"
}

# The network is waited for beside the first go; the tests that need vLLM tell what went wrong.
if [ $# -eq 0 ]; then
    .venv/bin/python -m modelops engine install vllm --engines-dir "$PWD/.venv/engines" \
        >"$work/install.log" 2>&1 &
    behind=$!
fi
run -n 2 --dist loadfile --no-loadscope-reorder "${beside[@]}" "$@"
if [ -n "$behind" ]; then wait "$behind" || true; fi
echo "vLLM's tests run beside the next ones; what they say follows after these."
tests "${engine[@]}" "$@" >"$work/engine.log" 2>&1 &
behind=$!
run "${computing[@]}" "$@"
code=0
wait "$behind" || code=$?
behind=
cat "$work/engine.log"
count "$code"
run "${alone[@]}" "$@"
exit "$status"
