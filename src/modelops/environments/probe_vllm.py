"""Runs inside an environment of vLLM, by its interpreter: says what is there, a JSON line a step.

Nothing of modelops is imported here, and modelops imports none of it.
"""

import importlib
import json
import sys
import warnings
from typing import Any


def tell(step: str, **what: Any) -> None:
    """Print one line: that a step begins, or with ``fact`` what was found."""
    sys.stdout.write("\n" + json.dumps({"step": step} | what) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Import vLLM, ask for its platform, and load the parser of its server."""
    warnings.simplefilter("ignore")
    tell("importing vllm")
    tell("version", fact=importlib.import_module("vllm").__version__)
    tell("asking vllm for its platform")
    platform = importlib.import_module("vllm.platforms").current_platform
    tell("platform", fact=platform.device_type or type(platform).__name__)
    tell("loading the server's arguments")
    importlib.import_module("vllm.entrypoints.openai.api_server")
    try:
        arguments = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    except ModuleNotFoundError:  # before vLLM 0.30
        arguments = importlib.import_module("vllm.entrypoints.openai.cli_args")
    utils = importlib.import_module("vllm.utils.argparse_utils")
    parser = arguments.make_arg_parser(utils.FlexibleArgumentParser())
    flags = {
        option: [str(c) for c in action.choices] if action.choices else None
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    tell("flags", fact=flags)


if __name__ == "__main__":
    main()
