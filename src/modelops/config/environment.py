"""The environment variables that override ``server`` in ``modelops.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from modelops.config.keys import parse_keys
from modelops.config.settings import ServerConfig
from modelops.errors import UsageError

_KEYS = "MODELOPS_API_KEYS"
VARIABLES = {
    "MODELOPS_HOST": "host",
    "MODELOPS_PORT": "port",
    "MODELOPS_FRONTS": "fronts",
    "MODELOPS_ADMIN_PORT": "admin_port",
    "MODELOPS_KEYS_FILE": "keys_file",
    "MODELOPS_DRAIN_SECONDS": "drain_seconds",
}


def server_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of ``ServerConfig`` that the environment sets; an empty one sets none.

    Raises:
        UsageError: a variable's value cannot be meant; it names the variable.
    """
    found: dict[str, Any] = {}
    for variable, field in VARIABLES.items():
        if text := environment.get(variable, "").strip():
            found |= _checked(variable, field, text)
    if keys := parse_keys(environment.get(_KEYS)):
        found |= _checked(_KEYS, "api_keys", keys)
    return found


def _checked(variable: str, field: str, value: Any) -> dict[str, Any]:
    try:
        config = ServerConfig.model_validate({field: value})
    except ValidationError as error:
        what = error.errors(include_input=False)[0]["msg"]
        what = what.removeprefix("Value error, ").removeprefix("Input ")
        raise UsageError(f"{variable}: {what}", hint=f"mend it, or: unset {variable}") from error
    return {field: getattr(config, field)}
