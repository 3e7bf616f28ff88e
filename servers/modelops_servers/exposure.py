"""Whether an address may be listened on: beyond this machine only with keys."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import SecretStr

from modelops.config import is_loopback
from modelops.errors import UsageError


def check_exposure(host: str, keys: Sequence[SecretStr]) -> None:
    """Refuse to listen beyond this machine without keys.

    Raises:
        UsageError: ``host`` is not a loopback address, and there is no key.
    """
    if not keys and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines, and no API key is set",
            hint="set one with MODELOPS_API_KEYS (or --api-key), or listen on 127.0.0.1",
        )
