"""``server`` and ``limits`` put together: flags over the environment over the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelops.api.flags import validated
from modelops.config import LimitsConfig, ServerConfig
from modelops.config.environment import server_from
from modelops.config.file import LoadedFile
from modelops.config.keys import read_keys
from modelops.progress import Progress


def server_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: LoadedFile | None,
    progress: Progress,
) -> ServerConfig:
    """Return how the gateway listens, with its keys read.

    Keys are not one setting but several: those of every place open the gateway.

    Raises:
        UsageError: a flag or an environment variable cannot be meant; it is named.
        InputError: the keys file cannot be read, or holds what is no key.
    """
    fields: dict[str, Any] = {}
    if file is not None:
        fields = file.config.server.model_dump(exclude_unset=True)
        if fields.get("keys_file") is not None:
            fields["keys_file"] = file.folder / fields["keys_file"]
    set_here = server_from(environment)
    for name in sorted((set_here.keys() & fields.keys()) - flags.keys()):
        progress(f"the environment overrides server.{name}")
    given = validated(ServerConfig, flags).model_dump(exclude_unset=True)
    keys = [*given.get("api_keys", ()), *set_here.get("api_keys", ())]
    fields |= set_here | given
    if fields.get("keys_file") is not None:
        keys += read_keys(fields["keys_file"], progress)
    fields["api_keys"] = list({key.get_secret_value(): key for key in keys}.values())
    return validated(ServerConfig, fields)


def limit_settings(flags: Mapping[str, Any], file: LoadedFile | None) -> LimitsConfig:
    """Return what one request may ask.

    Raises:
        UsageError: a flag cannot be meant.
    """
    fields = file.config.limits.model_dump(exclude_unset=True) if file is not None else {}
    return validated(LimitsConfig, fields | dict(flags))
