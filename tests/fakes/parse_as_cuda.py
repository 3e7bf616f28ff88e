"""Runs vLLM's parser of a CUDA wheel on a machine without a GPU: by another interpreter, as a file.

Command lines come as JSON on stdin; what was found goes to stdout as JSON.
"""

import importlib
import json
import sys
import types
from typing import Any

_SIMPLE = (str, int, float, bool, list, dict)


def main() -> None:
    asked = json.load(sys.stdin)
    vllm = importlib.import_module("vllm")
    platforms = importlib.import_module("vllm.platforms")
    # The kernels want a driver to be imported; what is parsed needs none of them.
    kernels = "vllm._C_stable_libtorch"
    sys.modules[kernels] = types.ModuleType(kernels)
    cuda = importlib.import_module("vllm.platforms.cuda")
    platforms._current_platform = cuda.NonNvmlCudaPlatform()

    arguments = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    utils = importlib.import_module("vllm.utils.argparse_utils")
    parser = arguments.make_arg_parser(utils.FlexibleArgumentParser())
    known = {option: action for action in parser._actions for option in action.option_strings}
    parsed = [vars(parser.parse_args(line)) for line in asked["lines"]]
    registry = importlib.import_module("vllm.v1.attention.backends.registry")
    backend = registry.AttentionBackendEnum[asked["backend"]].get_class()
    variables = importlib.import_module("vllm.envs").environment_variables
    found: dict[str, Any] = {
        "from": vllm.__file__,
        "version": vllm.__version__,
        "platform": platforms.current_platform.device_type,
        "flags": {
            flag: [str(c) for c in known[flag].choices] if known[flag].choices else None
            for flag in asked["flags"]
            if flag in known
        },
        "parsed": [
            {
                name: value
                for name, value in sorted(one.items())
                if value != parser.get_default(name) and isinstance(value, _SIMPLE)
            }
            for one in parsed
        ],
        "backends": {asked["backend"]: list(backend.supported_kv_cache_dtypes)},
        "variables": sorted(name for name in asked["variables"] if name in variables),
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
