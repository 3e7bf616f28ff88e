"""API keys: who may call, decided on the Authorization header alone and in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from pydantic import SecretStr

from modelops.errors import RequestError

OPEN_PATHS = frozenset({"/livez", "/readyz"})
_SCHEME = b"bearer "


class UnauthorizedError(RequestError):
    """The request carries no key that this gateway knows."""


class Keys:
    """The accepted keys, held only as hashes; with none, everybody may call."""

    def __init__(self, keys: Sequence[SecretStr]) -> None:
        self._hashes = [hashlib.sha256(k.get_secret_value().encode()).digest() for k in keys]

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Let the request pass or raise.

        Raises:
            UnauthorizedError: keys are on, the path is not open, and the one Authorization
                header does not bear a known key.
        """
        if not self._hashes or path in OPEN_PATHS:
            return
        values = [value for name, value in headers if name == b"authorization"]
        if len(values) == 1 and values[0][: len(_SCHEME)].lower() == _SCHEME:
            given = hashlib.sha256(values[0][len(_SCHEME) :].strip()).digest()
            # Every key is compared, so that time tells neither which nor how many there are.
            if sum(hmac.compare_digest(given, known) for known in self._hashes):
                return
        raise UnauthorizedError("a valid API key is needed: Authorization: Bearer KEY")
