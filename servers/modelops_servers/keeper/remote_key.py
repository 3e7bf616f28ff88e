"""The key of a server that somebody else runs: its name is in the configuration, never itself."""

from __future__ import annotations

import os

from modelops.config import ModelConfig, OpenAIOptions
from modelops.errors import MissingEnvironmentError


def key_of(config: ModelConfig) -> str | None:
    """Return the key that the entry's variable holds; None where it names none.

    Raises:
        MissingEnvironmentError: the variable is not set, or empty.
    """
    assert isinstance(config.options, OpenAIOptions)  # noqa: S101 - the config sees to it
    variable = config.options.key_variable
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise MissingEnvironmentError(
            f"the key of {config.url} is to be in {variable}, which is not set",
            hint=f"export {variable}=…",
        )
    return key
